"""Fold rows into rows of rows and unfold them, under verl's names.

Each function takes the table first and is bound as a method of the same name in :mod:`verl_like.protocol.table`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from verl_like.protocol.base_table import BaseTable
from verl_like.protocol.columns import Column, concatenated, described
from verl_like.protocol.ragged import Ragged
from verl_like.protocol.storage import is_values

Table = TypeVar("Table", bound=BaseTable)


def fold_batch_dim(table: Table, new_batch_size: int) -> Table:
    """Fold B rows, in their order, into ``new_batch_size`` rows of k = B / ``new_batch_size`` each.

    A fixed column goes from [B, ...] to [new_batch_size, k, ...], on the same storage if that is contiguous. An object
    column becomes lists of k objects. A token column has no second axis for the rows: it becomes an object column whose
    entries are Ragged of k rows, and :func:`unfold_batch_dim` makes a token column of it again.

    Raises:
        ValueError: if the rows do not divide.
    """
    if new_batch_size < 1 or len(table) % new_batch_size:
        raise ValueError(
            f"{len(table)} rows do not divide into {new_batch_size} rows of equal size; pad or drop rows first."
        )
    size = len(table) // new_batch_size
    columns = {name: _folded(column, new_batch_size, size) for name, column in table.columns.items()}
    return type(table)(columns, table.meta_info, new_batch_size)


def unfold_batch_dim(table: Table, batch_dims: int = 2) -> Table:
    """Merge the first ``batch_dims`` axes into one axis of rows; with 2 this is the inverse of :func:`fold_batch_dim`.

    A fixed column goes from [B, k, ...] to [B * k, ...], on the same storage if that is contiguous. An object column
    must hold k entries in each row, in a list, tuple or array, which become rows; if all are Ragged of k rows it
    becomes a token column. A token column has rows of different lengths and is refused.

    Raises:
        ValueError: for a column without such axes, or with another k than the others.
    """
    if batch_dims < 1 or (batch_dims > 1 and not table.columns):
        raise ValueError(
            f"batch_dims is {batch_dims} for a table of {len(table.columns)} columns; expected 1 or more, and 1 where "
            f"there are no columns."
        )
    for _ in range(batch_dims - 1):
        table = _with_axes_merged(table)
    return type(table)(table.columns, table.meta_info, len(table))


def _folded(column: Column, num_rows: int, size: int) -> Column:
    if isinstance(column, Ragged):
        return [column.view(i * size, (i + 1) * size) for i in range(num_rows)]
    if isinstance(column, list):
        return [column[i * size : (i + 1) * size] for i in range(num_rows)]
    return column.reshape((num_rows, size, *column.shape[1:]))


def _with_axes_merged(table: Table) -> Table:
    sizes = {name: _entries_per_row(name, column) for name, column in table.columns.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name!r} {size}" for name, size in sizes.items())
        raise ValueError(f"columns differ in the number of entries per row: {found}; expected the same number.")
    return type(table)({name: _merged(name, column) for name, column in table.columns.items()}, table.meta_info)


def _entries_per_row(name: str, column: Column) -> int:
    """Return the size of the second axis; raise ValueError if there is none. In a table without rows, objects have size
    0.
    """
    if isinstance(column, Ragged):
        raise ValueError(
            f"{described(name, column)}, whose rows differ in length; expected columns with a second axis. Pop it "
            f"first."
        )
    if not isinstance(column, list):
        if column.ndim < 2:
            raise ValueError(f"{described(name, column)}; expected a second axis, whose entries become rows.")
        return int(column.shape[1])
    sizes = {len(entry) if _holds_entries(entry) else -1 for entry in column}
    if len(sizes) > 1 or -1 in sizes:
        raise ValueError(
            f"{described(name, column)}; expected a list, tuple, array or Ragged of equally many entries in each row."
        )
    return sizes.pop() if sizes else 0


def _holds_entries(entry: Any) -> bool:
    return isinstance(entry, list | tuple | Ragged) or (is_values(entry) and entry.ndim > 0)


def _merged(name: str, column: Column) -> Column:
    if isinstance(column, list):
        if column and all(isinstance(entry, Ragged) for entry in column):
            return concatenated(name, column)
        return [item for entry in column for item in entry]
    assert not isinstance(column, Ragged), f"token column {name} has passed the check of second axes"
    rest = tuple(column.shape[2:])
    return column.reshape((int(np.prod(column.shape[:2])), *rest))
