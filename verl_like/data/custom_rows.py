"""Rows from a user's function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from verl_like.config.schema import DataConfig
from verl_like.config.user_code import error_text, from_file
from verl_like.data.picture_files import is_pillow_image
from verl_like.data.pictures import png_of

# Types of a row's values other than lists and dicts: scorers and workers, which cannot import the user's file, must be
# able to read them.
PLAIN = (type(None), bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal)
KEYS = (str, int, float, type(None))  # of a dict, because responses are written with their rows as JSON


class CustomRows:
    """``data.custom_dataset``, called with an entry of ``data.train_files`` or ``data.val_files`` instead of a reader.

    Raises:
        ValueError: if there is no such file or function, the call raises, or its result is not rows.
    """

    def __init__(self, data: DataConfig) -> None:
        path, _, name = data.custom_dataset.rpartition(":")
        self._spec = f"data.custom_dataset={data.custom_dataset}"
        self._function = from_file(Path(path).expanduser(), name, option="data.custom_dataset")
        self._kwargs = dict(data.custom_dataset_kwargs)

    def __call__(self, entry: str) -> Iterator[dict[str, Any]]:
        try:
            rows = enumerate(self._rows(self._function(entry, **self._kwargs), entry))
            while (numbered := next(rows, None)) is not None:
                yield self._checked(*numbered, entry)
        except _WrongRows:
            raise
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise ValueError(
                f"{self._spec} failed on {entry!r}:\n{error_text(error)}\nCorrect the function, "
                f"data.custom_dataset_kwargs, or the entry of data.train_files or data.val_files."
            ) from error

    def _rows(self, found: object, entry: str) -> Iterable[Any]:
        """Return the function's result as an iterable."""
        if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, (Iterable, Sized)):
            raise _WrongRows(
                f"{self._spec} returned a {type(found).__name__} for {entry!r}; expected rows: a list, a generator or "
                f"another iterable of dicts. Return such rows."
            )
        if isinstance(found, Iterable):
            return found
        return (found[i] for i in range(len(found)))  # type: ignore[index]  # torch's Dataset has no __iter__

    def _checked(self, index: int, row: object, entry: str) -> dict[str, Any]:
        if not isinstance(row, Mapping):
            raise _WrongRows(
                f"row {index} that {self._spec} returned for {entry!r} is a {type(row).__name__}; expected a dict of "
                f"columns, e.g. {{'prompt': ..., 'answer': ...}}."
            )
        checked = {}
        for column, value in row.items():
            if type(column) is not str:
                raise _WrongRows(
                    f"row {index} that {self._spec} returned for {entry!r} has a column named {column!r}; expected "
                    "text."
                )
            try:
                checked[column] = _plain(value)
            except _NotPlain as odd:
                raise _WrongRows(
                    f"row {index} that {self._spec} returned for {entry!r} has {odd.found} in the column {column!r}; "
                    f"expected {odd.expected}. Convert it."
                ) from None
        return checked


class _WrongRows(ValueError):
    """The function works, but its result is wrong."""


class _NotPlain(ValueError):
    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.found, self.expected = found, expected


def _plain(value: object) -> Any:
    """Return the value with lists instead of arrays of objects, as which pandas reads lists of a parquet file, and with
    PNG files instead of images of Pillow.

    Raises:
        _NotPlain: for an object that only the user's file knows, or a key that JSON does not allow.
    """
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _plain(value.tolist())
    if type(value) is list:
        return [_plain(part) for part in value]
    if type(value) is tuple:
        return tuple(_plain(part) for part in value)
    if type(value) is dict:
        return {_key(key): _plain(part) for key, part in value.items()}
    if is_pillow_image(value):
        return {"bytes": _png(value), "path": None}
    if not _is_plain(value):
        raise _NotPlain(
            f"a {type(value).__name__}",
            "text, numbers, dates, arrays, or lists and dicts of these, which processes without your file can read",
        )
    return value


def _png(image: Any) -> bytes:
    try:
        return png_of(image)
    except ValueError as error:
        raise _NotPlain(f"an image that {error}", "one with pixels") from error


def _key(key: object) -> object:
    if not (_is_plain(key) and isinstance(key, KEYS)):
        raise _NotPlain(f"the key {key!r:.80}, a {type(key).__name__},", "keys of text or plain numbers, as JSON has")
    return key


def _is_plain(value: object) -> bool:
    return type(value) in PLAIN or isinstance(value, (np.generic, np.ndarray))
