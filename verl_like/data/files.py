"""Read rows of parquet and jsonl files, and of other readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, overload

import numpy as np

from verl_like.config.schema import DataConfig
from verl_like.data.hub_datasets import PREFIX, hub_rows
from verl_like.data.records import (
    DECODED_AT_ONCE,
    DIGEST_BYTES,
    JsonLines,
    ParquetRows,
    PickledRows,
    Positions,
    Records,
    Values,
    json_lines,
    parquet_batches,
    plain_rows,
)

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


class EncodedRows(Sequence[Row]):
    """Rows of several sources, kept encoded; a row is decoded each time it is read.

    Args:
        sources: the rows of each entry of the list of files: its name, the prefix of its uids, and its records.
        chosen: positions among the rows of all sources; by default all of them.
    """

    def __init__(self, sources: Sequence[Source], chosen: Positions | None = None) -> None:
        self._sources = sources
        self._starts = np.cumsum([0, *(len(source.records) for source in sources)])
        self._chosen = np.arange(self._starts[-1]) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> EncodedRows: ...

    def __getitem__(self, index: int | slice) -> Row | EncodedRows:
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        return self.read(np.array([range(len(self))[index]]))[0]

    def __iter__(self) -> Iterator[Row]:
        for first in range(0, len(self), DECODED_AT_ONCE):
            yield from self.read(np.arange(first, min(first + DECODED_AT_ONCE, len(self))))

    def read(self, indices: Positions) -> list[Row]:
        """Return the rows with these indices, from 0."""
        positions = self._chosen[indices]
        numbers = self._numbers(positions)
        found: dict[int, Row] = {}
        for number in np.unique(numbers).tolist():
            source, where = self._sources[number], np.flatnonzero(numbers == number)
            in_source = positions[where] - self._starts[number]
            for i, index, values in zip(
                where.tolist(), in_source.tolist(), source.records.read(in_source), strict=True
            ):
                uid = f"{source.prefix}:{index}"
                found[i] = Row(file=source.file, index=index, file_number=number, uid=uid, values=values)
        return [found[i] for i in range(len(positions))]

    def take(self, indices: Sequence[int] | Positions) -> EncodedRows:
        """Return the rows with these indices, in this order."""
        return EncodedRows(self._sources, self._chosen[np.asarray(indices, np.int64)])

    def check(self) -> None:
        """Decode all rows of the sources, chosen or not.

        Raises:
            ValueError: for a row that cannot be decoded; the message names it.
        """
        for source in self._sources:
            source.records.check()

    @property
    def file_numbers(self) -> Positions:
        """Position of each row's file in the list of files, [B]."""
        return self._numbers(self._chosen)

    @property
    def digest(self) -> str:
        """Digest of the rows and their uids; it does not depend on the folder of the files."""
        found = blake2b(self._chosen.tobytes(), digest_size=DIGEST_BYTES)
        for source in self._sources:
            found.update(repr((source.prefix, len(source.records), source.records.digest)).encode())
        return found.hexdigest()

    def _numbers(self, positions: Positions) -> Positions:
        found: Positions = np.searchsorted(self._starts, positions, side="right") - 1
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """An entry of the list of files."""

    file: str
    prefix: str  # of its rows' uids
    records: Records


def read_rows(files: Sequence[str], reader: Reader | None = None) -> EncodedRows:
    """Return all rows of these files, in their order, after decoding each once.

    Raises:
        ValueError: as :func:`open_rows`, or for a row that cannot be decoded.
    """
    rows = open_rows(files, reader)
    rows.check()
    return rows


def open_rows(files: Sequence[str], reader: Reader | None = None) -> EncodedRows:
    """Return all rows of these files, in their order; those of files are not decoded yet.

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
    sources = []
    for position, (file, name) in enumerate(zip(files, names, strict=True)):
        # A uid must not change when the data folder moves, so it contains only the file name, and the file's position
        # if names collide.
        prefix = name if names.count(name) == 1 else f"{position}/{name}"
        sources.append(Source(file, prefix, _opened(file) if reader is None else PickledRows(reader(file))))
    rows = EncodedRows(sources)
    if not len(rows):
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
    for index, values in enumerate(_streamed(file, batch_size)):
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


def _opened(file: str) -> Records:
    if file.startswith(PREFIX):
        return PickledRows(hub_rows(file))
    path = _path(file)
    return ParquetRows(path) if path.suffix == ".parquet" else JsonLines(path)


def _streamed(file: str, batch_size: int) -> Iterator[Values]:
    if file.startswith(PREFIX):
        yield from hub_rows(file)
        return
    path, num_read = _path(file), 0
    if path.suffix == ".jsonl":
        yield from json_lines(path)
        return
    for batch in parquet_batches(path, batch_size):
        yield from plain_rows(batch, num_read, path)
        num_read += batch.num_rows


def _path(file: str) -> Path:
    path = Path(file).expanduser()
    if path.suffix not in SUFFIXES:
        ending = repr(path.suffix) if path.suffix else "no suffix"
        raise ValueError(f"data file {path} ends in {ending}; expected one of {', '.join(SUFFIXES)}. Convert it first.")
    if not path.is_file():
        raise ValueError(
            f"data file {path} does not exist (looked from {Path.cwd()}). "
            f"Check data.train_files and data.val_files, or prepare the data first."
        )
    return path
