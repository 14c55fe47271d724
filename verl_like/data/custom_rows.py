"""Rows that a user's own function makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from verl_like.config.schema import DataConfig
from verl_like.config.user_code import from_file, told

# What a row may hold besides lists and dicts: scorers and workers, which never see the user's file, are to read it.
PLAIN = (type(None), bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal)


class CustomRows:
    """``data.custom_dataset``, called with an entry of ``data.train_files`` or ``data.val_files`` in place of a reader.

    Raises:
        ValueError: no such file or function, a call that raises, or what it gives is no rows.
    """

    def __init__(self, data: DataConfig) -> None:
        path, _, name = data.custom_dataset.rpartition(":")
        self._spec = f"data.custom_dataset={data.custom_dataset}"
        self._function = from_file(Path(path).expanduser(), name, knob="data.custom_dataset")
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
                f"{self._spec} failed on {entry!r}:\n{told(error)}\nCorrect the function, data.custom_dataset_kwargs, "
                f"or the entry of data.train_files or data.val_files."
            ) from error

    def _rows(self, found: object, entry: str) -> Iterable[Any]:
        """What the function has given, as something to go through."""
        if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, (Iterable, Sized)):
            raise _WrongRows(
                f"{self._spec} gave a {type(found).__name__} for {entry!r}; expected rows: a list, a generator or "
                f"another iterable of dicts. Return these."
            )
        if isinstance(found, Iterable):
            return found
        return (found[i] for i in range(len(found)))  # type: ignore[index]  # torch's Dataset has no __iter__

    def _checked(self, index: int, row: object, entry: str) -> dict[str, Any]:
        if not isinstance(row, Mapping):
            raise _WrongRows(
                f"row {index} that {self._spec} gave for {entry!r} is a {type(row).__name__}; expected a dict of "
                f"columns, e.g. {{'prompt': ..., 'answer': ...}}."
            )
        for column, value in row.items():
            if type(column) is not str:
                raise _WrongRows(
                    f"row {index} that {self._spec} gave for {entry!r} has a column named {column!r}; expected text."
                )
            if (odd := _not_plain(value)) is not None:
                raise _WrongRows(
                    f"row {index} that {self._spec} gave for {entry!r} has a {odd.__name__} in the column {column!r}; "
                    f"expected text, numbers, dates, arrays, or lists and dicts of these, which processes without your "
                    f"file can read. Turn it into one."
                )
        return dict(row)


class _WrongRows(ValueError):
    """The function works, and what it gives is wrong."""


def _not_plain(value: object) -> type | None:
    """The type of something in ``value`` that only the user's file knows; None where there is nothing."""
    if type(value) in (list, tuple):
        parts: Iterable[object] = value  # type: ignore[assignment]
    elif type(value) is dict:
        parts = [part for pair in value.items() for part in pair]
    elif type(value) in PLAIN or (isinstance(value, (np.generic, np.ndarray)) and value.dtype != object):
        return None
    else:
        return type(value)
    return next((odd for part in parts if (odd := _not_plain(part)) is not None), None)
