"""Rows of Hugging Face datasets: ``hf:NAME:SPLIT`` or ``hf:NAME:CONFIGURATION:SPLIT`` among the data files."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PREFIX = "hf:"
_MEDIA = ("Audio", "Image", "Video")  # features whose values are decoded when they are read


@dataclass(frozen=True, slots=True)
class HubTable:
    """A split of a dataset, on the hub or in a folder that ``datasets`` reads."""

    name: str
    configuration: str | None
    split: str

    @classmethod
    def of(cls, entry: str) -> HubTable:
        """Parse an entry of the list of files.

        Raises:
            ValueError: if it has another form.
        """
        # A split may contain a colon: train[:10%].
        parts = re.split(r":(?![^\[]*\])", entry.removeprefix(PREFIX))
        if len(parts) not in (2, 3) or not all(parts):
            raise ValueError(
                f"{entry} names no split of a dataset; expected hf:NAME:SPLIT or hf:NAME:CONFIGURATION:SPLIT, e.g. "
                f"hf:openai/gsm8k:main:train. Use one of these forms."
            )
        return cls(parts[0], parts[1] if len(parts) == 3 else None, parts[-1])


def is_on_hub(entry: str) -> bool:
    """Return whether an entry names a dataset that is not a folder on this machine."""
    if not entry.startswith(PREFIX) or hub_problem(entry) is not None:
        return False
    return not Path(HubTable.of(entry).name).expanduser().is_dir()


def hub_problem(entry: str) -> str | None:
    """Return the problem with an entry that is known without loading it, or None."""
    try:
        HubTable.of(entry)
    except ValueError as error:
        return str(error)
    spec = importlib.util.find_spec("datasets")
    if spec is None or spec.origin is None:  # a folder of that name is not the package
        return (
            f"{entry} requires the package datasets, which is not installed. Install it: pip install "
            f"'verl-like[datasets]'. Or write the rows as parquet or jsonl files."
        )
    return None


def hub_rows(entry: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a split, downloading it if needed.

    Images, videos and sounds stay encoded, as dicts of ``bytes`` and ``path``, so that they are checked with their row,
    or refused without a package that decodes them.

    Raises:
        ValueError: if the package, the dataset or the split does not exist.
    """
    if (problem := hub_problem(entry)) is not None:
        raise ValueError(problem)
    table = HubTable.of(entry)
    from datasets import load_dataset  # the import takes a second
    from datasets.exceptions import DatasetsError

    folder = Path(table.name).expanduser()
    try:
        rows = load_dataset(str(folder) if folder.is_dir() else table.name, table.configuration, split=table.split)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise ValueError(
            f"{entry} cannot be loaded: {type(error).__name__}: {error}\nCorrect the name, the configuration or the "
            f"split; without a network, name a local folder (hf:path/to/folder:train)."
        ) from error
    for column, feature in rows.features.items():
        if type(feature).__name__ in _MEDIA:  # by name: datasets 3.0 has no Video
            rows = rows.cast_column(column, replace(feature, decode=False))
    try:
        yield from rows
    except ImportError as error:
        raise ValueError(
            f"{entry} has a column that is decoded by a package that is not installed: {error}\nExpected text-only "
            f"prompts. Write the rows as parquet or jsonl files without that column."
        ) from error
