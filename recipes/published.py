"""Convert published data sets, from a folder or the Hugging Face hub, to rows that a run reads."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_like.data.files import Row, each_row

RowDict = dict[str, Any]
Splits = Mapping[str, Iterable[RowDict]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedFile:
    """A file of a data set on the hub: the data set's name, the file's path there, and its name outside the hub."""

    hub_name: str
    path: str
    elsewhere: str = ""

    @property
    def names(self) -> list[str]:
        """Accepted names in a folder, which may be a copy of the data set or contain only the file."""
        return list(dict.fromkeys(filter(None, (self.path, Path(self.path).name, self.elsewhere))))

    def fetched(self, source: str = "") -> Path:
        """Return the file on this machine.

        Args:
            source: a folder that contains it, or another name on the hub; empty for the published one.

        Raises:
            ValueError: a folder without the file, or a hub name that cannot be reached.
        """
        folder = Path(source).expanduser()
        if not source or not folder.is_dir():
            return self._downloaded(source or self.hub_name)
        for name in self.names:
            if (folder / name).is_file():
                return folder / name
        raise ValueError(
            f"--source {source} contains none of {', '.join(self.names)}. Put the file of {self.hub_name} there, under "
            "one of these names."
        )

    def _downloaded(self, hub_name: str) -> Path:
        # Imported here: the local path needs neither the package nor the network.
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        try:
            return Path(hf_hub_download(hub_name, self.path, repo_type="dataset"))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise ValueError(
                f"--source is {hub_name}, which is no folder here, and its {self.path} could not be fetched from the "
                f"Hugging Face hub: {type(error).__name__}: {error}\n"
                f"Connect to the network, correct the name (the published one is {self.hub_name}), or give a folder "
                f"with {self.elsewhere or Path(self.path).name}."
            ) from error


def converted(files: Mapping[str, PublishedFile], source: str, convert: Callable[[Row, str], RowDict]) -> Splits:
    """Convert the published rows of each split one by one as they are read; fetch all files first.

    Args:
        files: of each split.
        source: as for :meth:`PublishedFile.fetched`.
        convert: from a published row and the name of its split.
    """
    found = {split: file.fetched(source) for split, file in files.items()}
    return {split: _converted(file, split, convert) for split, file in found.items()}


def _converted(file: Path, split: str, convert: Callable[[Row, str], RowDict]) -> Iterator[RowDict]:
    for row in each_row(str(file)):
        yield convert(row, split)


def write_splits(splits: Splits, out: Path, limit: int = 0) -> dict[str, int]:
    """Write a parquet file of each split below ``out``; return the number of rows of each.

    Args:
        limit: keep that many rows of each split; 0 keeps all.

    Raises:
        ValueError: what reading the rows raises, or a split without rows; then nothing has been written.
    """
    rows = {split: list(islice(found, limit or None)) for split, found in splits.items()}
    for split, found in rows.items():
        if not found:
            raise ValueError(f"the split {split} has no rows; expected some. Check the files of --source.")
    out.mkdir(parents=True, exist_ok=True)
    for split, found in rows.items():
        pq.write_table(pa.Table.from_pylist(found), out / f"{split}.parquet")
    return {split: len(found) for split, found in rows.items()}


def prepare(make: Callable[[str], Splits], *, files: str, hub_name: str, argv: list[str] | None) -> None:
    """Run the command of a ``prepare.py``.

    Args:
        make: from ``--source`` to the rows of each split.
        files: what a folder given as ``--source`` holds, for the help.
        hub_name: of the published data, for the help.
        argv: the words of the command; None takes the process's own.
    """
    parser = argparse.ArgumentParser(description=f"Make rows of {hub_name} in the schema of verl.")
    parser.add_argument("--out", type=Path, required=True, help="folder for a parquet file of each split")
    parser.add_argument("--source", default="", help=f"folder with {files}, or a hub name; by default {hub_name}")
    parser.add_argument("--limit", type=int, default=0, help="maximum number of rows of each split; 0 keeps all")
    args = parser.parse_args(argv)
    try:
        counts = write_splits(make(args.source), args.out, args.limit)
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")
    print(f"{args.out}: " + ", ".join(f"{split}.parquet {count} rows" for split, count in counts.items()))
