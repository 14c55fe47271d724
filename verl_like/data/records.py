"""Rows of one source, kept encoded in one buffer and decoded when they are read."""

from __future__ import annotations

import json
import pickle
import sys
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Values = dict[str, Any]  # of a row, by column
Positions = NDArray[np.int64]

DIGEST_BYTES = 16
DECODED_AT_ONCE = 1024  # rows; a decoded row takes ten times as much memory as an encoded one
_READ_AT_ONCE = 2048  # rows of a parquet file,
_BATCHES_JOINED = 16  # which are read from few batches and take less memory there
_BUFFER_BYTES = 2**16  # of a column of a parquet file; without a limit, pyarrow 26.0 reads a whole row group
_SEARCHED_AT_ONCE = 2**22  # bytes
_NEWLINE, _WHITESPACE = ord("\n"), np.frombuffer(b" \t\n\r\x0b\x0c", np.uint8)


class Records(Protocol):
    """The rows of one source, in their order; reading a row twice gives equal values, not the same objects."""

    def __len__(self) -> int: ...

    def read(self, positions: Positions) -> list[Values]:
        """Return the values of the rows at these positions."""

    def check(self) -> None:
        """Decode all rows.

        Raises:
            ValueError: for a row that cannot be decoded; the message names it.
        """

    @property
    def digest(self) -> str:
        """Digest of the source's bytes; rows with equal digests have equal values."""


class JsonLines:
    """The lines of a jsonl file that are not blank."""

    def __init__(self, path: Path) -> None:
        self._path, self._bytes = path, path.read_bytes()
        self._starts, self._ends = _filled_lines(self._bytes)

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, positions: Positions) -> list[Values]:
        return [self._row(start, end) for start, end in self._bounds(positions)]

    def check(self) -> None:
        for start, end in self._bounds(np.arange(len(self))):
            self._row(start, end)

    @property
    def digest(self) -> str:
        return blake2b(self._bytes, digest_size=DIGEST_BYTES).hexdigest()

    def _bounds(self, positions: Positions) -> Iterator[tuple[int, int]]:
        return zip(self._starts[positions].tolist(), self._ends[positions].tolist(), strict=True)

    def _row(self, start: int, end: int) -> Values:
        line = self._bytes[start:end]
        try:
            return json_object(line)
        except ValueError as error:
            number = self._bytes.count(b"\n", 0, start) + 1
            raise ValueError(f"line {number} of {self._path} {error}") from error


class ParquetRows:
    """The rows of a parquet file as Arrow batches."""

    def __init__(self, path: Path) -> None:
        self._path, self._batches = path, list[pa.RecordBatch]()
        status = path.stat()
        read = list[pa.RecordBatch]()
        for batch in parquet_batches(path, _READ_AT_ONCE):
            read.append(batch)
            if len(read) == _BATCHES_JOINED:
                self._keep(read)
        self._keep(read)
        self._digest = digest_of_file(path)
        now = path.stat()
        if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            raise ValueError(
                f"data file {path} changed while it was read; expected a file that is complete. Start again when it "
                "has been written."
            )
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def _keep(self, read: list[pa.RecordBatch]) -> None:
        """Keep these batches as one, and empty the list."""
        if read:
            try:
                self._batches.append(pa.concat_batches(read))
            except pa.ArrowInvalid:  # more than 2 GiB in a column, whose offsets have 32 bits
                self._batches += read
            read.clear()
            pa.default_memory_pool().release_unused()  # otherwise twice the memory of the rows

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def digest(self) -> str:
        return self._digest

    def read(self, positions: Positions) -> list[Values]:
        found: list[Values] = [{}] * len(positions)
        batches = np.searchsorted(self._starts, positions, side="right") - 1
        for number in np.unique(batches).tolist():
            where = np.flatnonzero(batches == number)
            taken = self._batches[number].take(pa.array(positions[where] - self._starts[number]))
            for i, values in zip(where.tolist(), taken.to_pylist(), strict=True):
                found[i] = values
        return found

    def check(self) -> None:
        for start, batch in zip(self._starts.tolist(), self._batches, strict=False):
            for first in range(0, batch.num_rows, DECODED_AT_ONCE):
                plain_rows(batch.slice(first, DECODED_AT_ONCE), start + first, self._path)


class PickledRows:
    """Rows of another reader. They are pickled in memory alone, so no pickle of somebody else is ever read."""

    def __init__(self, rows: Iterable[Values]) -> None:
        self._bytes, self._ends = bytearray(), array("q", [0])
        for values in rows:
            self._bytes += pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def read(self, positions: Positions) -> list[Values]:
        content = memoryview(self._bytes)
        return [pickle.loads(content[self._ends[i] : self._ends[i + 1]]) for i in positions.tolist()]

    def check(self) -> None:
        """Do nothing: the reader has checked its rows."""

    @property
    def digest(self) -> str:
        return blake2b(self._bytes, digest_size=DIGEST_BYTES).hexdigest()


def digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=DIGEST_BYTES)).hexdigest()


def _filled_lines(content: bytes) -> tuple[Positions, Positions]:
    """Return where the lines that are not blank start, and where they end (their newline included)."""
    text = np.frombuffer(content, np.uint8)
    breaks = [
        np.flatnonzero(text[first : first + _SEARCHED_AT_ONCE] == _NEWLINE) + (first + 1)
        for first in range(0, len(text), _SEARCHED_AT_ONCE)
    ]
    ends = np.concatenate([*breaks, *([[len(text)]] if content and content[-1] != _NEWLINE else [])] or [[]])
    ends = ends.astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    is_filled = np.ones(len(ends), bool)
    for i in np.flatnonzero(np.isin(text[starts], _WHITESPACE)).tolist():
        is_filled[i] = bool(content[starts[i] : ends[i]].strip())
    return (starts, ends) if is_filled.all() else (starts[is_filled], ends[is_filled])


def json_lines(path: Path) -> Iterator[Values]:
    """Yield the rows of a jsonl file one by one.

    Raises:
        ValueError: for a line that is no JSON object; the message names it.
    """
    with path.open("rb") as lines:  # bytes, so that a line that is not text is reported by its number
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield json_object(line)
                except ValueError as error:
                    raise ValueError(f"line {number} of {path} {error}") from error


def json_object(line: bytes) -> Values:
    """Return the object that a line holds.

    Raises:
        ValueError: it holds none; the caller adds the line's location in front.
    """
    try:
        values = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not UTF-8 text: its byte {error.start} is 0x{line[error.start]:02x} ({error.reason}). "
            "Convert the file, e.g. with `iconv -f LATIN1 -t UTF-8`."
        ) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}. Each line must hold one object.") from error
    except RecursionError as error:
        raise ValueError(
            "has lists or objects that are nested too deep for Python's JSON reader. Write the deepest of them as "
            "strings."
        ) from error
    except ValueError as error:  # in valid JSON, the only ValueError left is for an integer of too many digits
        limit = sys.get_int_max_str_digits()
        raise ValueError(
            f"has an integer of more than {limit} digits, which cannot be read. Write it as a string."
        ) from error
    if not isinstance(values, dict):
        raise ValueError(f"holds a {type(values).__name__}; expected one JSON object per line.")
    return values


def parquet_batches(path: Path, batch_size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a parquet file in batches.

    Raises:
        ValueError: the file cannot be read as parquet.
    """
    num_read = 0
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            for batch in file.iter_batches(batch_size, use_threads=False):  # threads keep as much memory as the rows
                num_read += batch.num_rows
                schema = pa.schema([_without_views(each) for each in batch.schema])
                yield batch if schema.equals(batch.schema) else batch.cast(schema)
    except (pa.ArrowException, OSError) as error:  # OSError: a damaged page, in pyarrow 26.0
        where = f" from row {num_read} on" if num_read else ""
        raise ValueError(f"data file {path} cannot be read as parquet{where}: {error}. Write it again.") from error


def _without_views(field: pa.Field) -> pa.Field:
    """Return the field with the types that pyarrow can take rows of: it cannot of views (26.0)."""
    types = pa.types
    found = field.type
    if types.is_string_view(found):
        found = pa.large_string()
    elif types.is_binary_view(found):
        found = pa.large_binary()
    elif types.is_struct(found):
        found = pa.struct([_without_views(each) for each in found])
    elif types.is_list(found):
        found = pa.list_(_without_views(found.value_field))
    elif types.is_large_list(found):
        found = pa.large_list(_without_views(found.value_field))
    return field.with_type(found)


def plain_rows(batch: pa.RecordBatch, first: int, path: Path) -> list[Values]:
    """Return the rows of a batch as dicts; ``first`` is the position of its first row in the file.

    Raises:
        ValueError: for a value without an equivalent in Python; the message names its row and column.
    """
    try:
        rows: list[Values] = batch.to_pylist()
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
