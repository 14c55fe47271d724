"""Rows in a numpy file without pickles, so that reading it runs no code of its writer."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from verl_like.protocol.ragged import Ragged
from verl_like.protocol.storage import Array

VALUES, LENGTHS = ".values", ".lengths"
# Exceptions of zipfile and numpy for damaged files; a single bit of a header can mean "encrypted", a RuntimeError.
_UNREADABLE: tuple[type[Exception], ...] = (
    *(OSError, EOFError, ValueError, BadZipFile, RuntimeError, LookupError, MemoryError, OverflowError),
    *(TypeError, SyntaxError, struct.error, zlib.error),
)


def write_rows(path: Path, columns: Mapping[str, Ragged | Array]) -> None:
    """Write columns of numbers and short strings as an ``.npz``.

    A ragged column ``c`` becomes ``c.values``, the tokens of all rows concatenated, and ``c.lengths``.
    """
    arrays: dict[str, Array] = {}
    for name, column in columns.items():
        if isinstance(column, Ragged):
            arrays |= {name + VALUES: column.values, name + LENGTHS: column.lengths}
        else:
            assert column.dtype != object, f"column {name} holds objects, which only a pickle could keep"
            arrays[name] = column
    np.savez(path, **arrays)  # type: ignore[arg-type]  # its own options come before these names


def read_rows(path: Path) -> dict[str, Ragged | Array]:
    """Read what :func:`write_rows` wrote.

    Raises:
        ValueError: if the file is damaged, or holds pickles.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        ragged = {name.removesuffix(VALUES) for name in arrays if name.endswith(VALUES)}
        return {
            **{name: array for name, array in arrays.items() if not name.endswith((VALUES, LENGTHS))},
            **{name: Ragged.from_lengths(arrays[name + VALUES], arrays[name + LENGTHS]) for name in ragged},
        }
    except _UNREADABLE as error:
        raise ValueError(f"{path} cannot be read: {error}. Expected rows that write_rows wrote.") from error
