"""Store functions and rows that a script or notebook puts into a configuration instead of file names.

They are written below the run's folder, and the configuration names them as a command line would: a function as
``path/to/file.py:name``, rows as a data file. Names are derived from the content, so that the same objects continue a
run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from verl_like.config.schema import Config
from verl_like.stored_functions import stored_function, write_private

FUNCTIONS = ("reward.function", "algorithm.adv_estimator", "actor.policy_loss", "data.custom_dataset", "data.sampler")
ROWS = ("data.train_files", "data.val_files")
FUNCTION_MAPPING = "reward.functions"  # name -> {"function": ...}


@runtime_checkable
class ArrowTable(Protocol):
    """A table of pyarrow, pandas or polars that supports Arrow's protocol."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


def is_object(key: str, value: Any) -> bool:
    """Return whether the value of a dotted key is a function or rows instead of a name of them."""
    if key in FUNCTIONS:
        return not isinstance(value, str)
    if key in ROWS:
        is_named = isinstance(value, (list, tuple)) and all(isinstance(each, (str, Path)) for each in value)
        return not is_named and not isinstance(value, str)
    return key == FUNCTION_MAPPING and isinstance(value, Mapping) and any(map(_has_function, value.values()))


def _has_function(entry: Any) -> bool:
    return isinstance(entry, Mapping) and callable(entry.get("function"))


def stored(config: Config, folder: Path) -> Config:
    """Write functions and rows into files of ``folder``; return a copy of the configuration that names these files.

    Raises:
        ValueError: a function cannot be sent to another process, or rows or other values cannot be written to a file.
    """
    found: Config = _copied(config)
    for key, section, name in _leaves(found, ""):
        value = getattr(section, name)
        setattr(section, name, plain(_named(key, value, folder) if is_object(key, value) else value, key))
    return found


def _named(key: str, value: Any, folder: Path) -> Any:
    if key in FUNCTIONS:
        return stored_function(value, folder, option=key)
    if key in ROWS:
        return _files(value, folder, option=key)
    return {
        name: {**entry, "function": stored_function(entry["function"], folder, option=f"{key}.{name}.function")}
        if _has_function(entry)
        else entry
        for name, entry in value.items()
    }


def _copied(section: Any) -> Any:
    """Copy a section and its subsections; values are shared, because rows may be large."""
    values = {each.name: getattr(section, each.name) for each in fields(section)}
    return replace(section, **{name: _copied(value) for name, value in values.items() if is_dataclass(value)})


def _leaves(section: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Yield (dotted key, section, name of the field) of every value."""
    for each in fields(section):
        value, key = getattr(section, each.name), f"{prefix}{each.name}"
        if is_dataclass(value):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, section, each.name


def plain(value: Any, key: str) -> Any:
    """Convert a value to plain types for a configuration file; scripts often use paths and NumPy's numbers."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {plain(name, key): plain(each, key) for name, each in value.items()}
    if isinstance(value, (list, tuple, Set)):
        return [plain(each, key) for each in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    if str(value).startswith("torch."):  # a dtype
        return str(value).removeprefix("torch.")
    raise ValueError(
        f"{key} is a {type(value).__name__}, but a run's config.yaml has only text, numbers, lists and mappings. "
        "Pass such values, and make the object inside the function that needs it."
    )


# ---- rows


def _files(given: Any, folder: Path, *, option: str) -> list[str]:
    """Return the files of the rows: named files, and a new file for each table or list of rows."""
    is_several = isinstance(given, (list, tuple)) and not all(isinstance(row, Mapping) for row in given)
    entries = given if is_several else [given]
    return [str(each) if isinstance(each, (str, Path)) else str(_file(each, folder, option=option)) for each in entries]


def _file(rows: Any, folder: Path, *, option: str) -> Path:
    if isinstance(rows, ArrowTable):
        content, suffix = _parquet(rows), "parquet"
    else:
        content, suffix = _jsonl(_each(rows, option=option), option=option), "jsonl"
    path = folder / f"{option.rpartition('.')[2]}-{sha256(content).hexdigest()[:12]}.{suffix}"
    if not path.exists():
        write_private(path, content)
    return path


def _each(rows: Any, *, option: str) -> Iterator[Any]:
    """Iterate over the rows of a list, a datasets.Dataset, or any other iterable."""
    try:
        return iter(rows)
    except TypeError:
        raise ValueError(
            f"{option} is a {type(rows).__name__}; expected file names, or rows: a list of dicts, a "
            "datasets.Dataset, or a table of pyarrow, pandas or polars."
        ) from None


def _parquet(table: ArrowTable) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(table).replace_schema_metadata(None), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _jsonl(rows: Iterable[Any], *, option: str) -> bytes:
    lines = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(
                f"row {number} of {option} is a {type(row).__name__}; expected a dict of columns, e.g. "
                '{"prompt": "1+1=", "answer": "2"}.'
            )
        try:
            lines.append(json.dumps(dict(row), ensure_ascii=False, default=_jsonable) + "\n")
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"row {number} of {option} has a value that JSON cannot represent: {error}. Give text, numbers, "
                f"lists and dicts, or write a parquet file and set {option}=[path]."
            ) from error
    return "".join(lines).encode("utf-8", "surrogatepass")


def _jsonable(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")
