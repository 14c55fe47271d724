"""Read rows of parquet and jsonl files, and of other readers, as dicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_like.config.schema import DataConfig
from verl_like.data.hub_datasets import PREFIX, hub_rows

SUFFIXES = (".parquet", ".jsonl")
Reader = Callable[[str], Iterable[dict[str, Any]]]  # an entry of the list of files -> its rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row and its origin."""

    file: str
    index: int  # position in its file, from 0; blank lines of a jsonl file do not count
    file_number: int  # position of its file in the list of files
    uid: str  # names the row in this list of files, whatever folder they are in
    values: dict[str, Any]

    @property
    def location(self) -> str:
        return f"row {self.index} of {self.file}"

    def value(self, column: str, option: str) -> Any:
        """Return the value in ``column``; if there is none, raise ValueError with the option and the existing
        columns.
        """
        if column not in self.values:
            raise ValueError(
                f"{option} is {column!r}, but {self.location} has no such column; it has {sorted(self.values)}. "
                f"Set {option} to one of these, or add the column."
            )
        return self.values[column]


@contextmanager
def located(row: Row) -> Iterator[None]:
    """Name the row in errors of what is read from it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{row.location}: {error}") from error


def shown(value: Any) -> str:
    """Return a value of a row for an error: its first 80 characters in quotes, or null."""
    return "null" if value is None else repr(str(value)[:80])


def read_rows(files: Sequence[str], reader: Reader | None = None) -> list[Row]:
    """Return all rows of these files, in their order.

    Args:
        reader: reads the rows of one entry; by default that for files and Hugging Face datasets.

    Raises:
        ValueError: for no files, a missing or unreadable file, an unknown suffix, or files without any row.
    """
    if not files:
        raise ValueError(
            "found no data files; expected at least one. Set data.train_files (or data.val_files) to a list of "
            "parquet or jsonl files."
        )
    names = [Path(file).name for file in files]
    rows: list[Row] = []
    for position, (file, name) in enumerate(zip(files, names, strict=True)):
        # A uid must not change when the data folder moves, so it contains only the file name, and the file's position
        # if names collide.
        prefix = name if names.count(name) == 1 else f"{position}/{name}"
        for index, values in enumerate((reader or _records)(file)):
            rows.append(Row(file=file, index=index, file_number=position, uid=f"{prefix}:{index}", values=values))
    if not rows:
        raise ValueError(
            f"the dataset is empty: {list(files)} hold no rows; expected at least one. "
            f"Prepare the data again, or name other files."
        )
    return rows


def each_row(file: str, *, batch_size: int = 8192) -> Iterator[Row]:
    """Yield the rows of a file one by one, so that only the rows in use are in memory.

    Args:
        batch_size: rows of a parquet file that are read at once.

    Raises:
        ValueError: as :func:`read_rows`, at the first row; but not for a file without rows.
    """
    for index, values in enumerate(_records(file, batch_size)):
        yield Row(file=file, index=index, file_number=0, uid=f"{Path(file).name}:{index}", values=values)


def first_row(file: str) -> Row | None:
    """Return the first row of a file, without reading the others; None if there is none.

    Raises:
        ValueError: as :func:`read_rows`.
    """
    return next(each_row(file, batch_size=1), None)


def ground_truth(row: Row, data: DataConfig, *, is_needed: bool = True) -> Any:
    """Return ``reward_model.ground_truth``, otherwise the column ``data.answer_key``, or None if that key is empty.

    Args:
        is_needed: whether something scores by it; otherwise the column may be missing, and the result is None.
    """
    nested = row.values.get("reward_model")
    if isinstance(nested, dict) and "ground_truth" in nested:
        return nested["ground_truth"]
    if not data.answer_key:
        return None
    if data.answer_key not in row.values and not is_needed:
        return None
    if data.answer_key not in row.values:
        raise ValueError(
            f"{row.location} has neither reward_model.ground_truth nor the column data.answer_key={data.answer_key!r}; "
            f"it has {sorted(row.values)}. "
            f"Set data.answer_key to one of these, or data.answer_key='' where the reward needs no ground truth."
        )
    return row.values[data.answer_key]


def _records(file: str, batch_size: int = 8192) -> Iterator[dict[str, Any]]:
    if file.startswith(PREFIX):
        return hub_rows(file)
    path = Path(file).expanduser()
    if path.suffix not in SUFFIXES:
        ending = repr(path.suffix) if path.suffix else "no suffix"
        raise ValueError(f"data file {path} ends in {ending}; expected one of {', '.join(SUFFIXES)}. Convert it first.")
    if not path.is_file():
        raise ValueError(
            f"data file {path} does not exist (looked from {Path.cwd()}). "
            f"Check data.train_files and data.val_files, or prepare the data first."
        )
    return _parquet(path, batch_size) if path.suffix == ".parquet" else _jsonl(path)


def _parquet(path: Path, batch_size: int) -> Iterator[dict[str, Any]]:
    num_read = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size):
                yield from _plain_rows(batch, num_read, path)
                num_read += batch.num_rows
    except (pa.ArrowException, OSError) as error:  # OSError: a damaged page, in pyarrow 26.0
        where = f" from row {num_read} on" if num_read else ""
        raise ValueError(f"data file {path} cannot be read as parquet{where}: {error}. Write it again.") from error


def _plain_rows(batch: pa.RecordBatch, first: int, path: Path) -> list[dict[str, Any]]:
    """Return the rows of a batch as dicts; ``first`` is the position of its first row in the file."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        row, column = next(
            (row, column)
            for row in range(batch.num_rows)
            for column in range(batch.num_columns)
            if not _has_a_python_value(batch.column(column)[row])
        )
        field = batch.schema.field(column)
        remedy = (
            "Write the column in microseconds, or as text."
            if pa.types.is_temporal(field.type)
            else "Write the column again, or leave it out."
        )
        reason = str(error).partition(". Install pandas")[0]
        raise ValueError(
            f"row {first + row} of {path} has a value in the column {field.name!r} (of type {field.type}) that "
            f"cannot be read: {reason}. {remedy}"
        ) from error
    return rows


def _has_a_python_value(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (ValueError, OverflowError):
        return False
    return True


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:  # bytes, so that a line that is not text is reported by its number
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _json_object(line, f"line {number} of {path}")


def _json_object(line: bytes, location: str) -> dict[str, Any]:
    try:
        values = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{location} is not UTF-8 text: its byte {error.start} is 0x{line[error.start]:02x} ({error.reason}). "
            "Convert the file, e.g. with `iconv -f LATIN1 -t UTF-8`."
        ) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{location} is not JSON: {error}. Each line must hold one object.") from error
    except RecursionError as error:
        raise ValueError(
            f"{location} has lists or objects that are nested too deep for Python's JSON reader. Write the deepest "
            "of them as strings."
        ) from error
    except ValueError as error:  # in valid JSON, the only ValueError left is for an integer of too many digits
        limit = sys.get_int_max_str_digits()
        raise ValueError(
            f"{location} has an integer of more than {limit} digits, which cannot be read. Write it as a string."
        ) from error
    if not isinstance(values, dict):
        raise ValueError(f"{location} holds a {type(values).__name__}; expected one JSON object per line.")
    return values
