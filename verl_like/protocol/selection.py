"""Convert users' selections of rows and columns (slices, indices, masks, counts, names) to one form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from verl_like.protocol.storage import Array, on_host

if TYPE_CHECKING:
    from torch import Tensor

Names = str | Iterable[str]
Selection: TypeAlias = "slice | Sequence[int] | Sequence[bool] | Array | Tensor"


def row_index(rows: Selection, num_rows: int) -> Array:
    """Return the rows that a slice, indices of any integer dtype (negative ones count from the end) or a boolean mask
    select, as int64 from 0 to ``num_rows - 1``.

    Raises:
        IndexError: for an index outside the table.
        ValueError: for a mask of another length than the table, or entries that are neither ints nor bools.
    """
    if isinstance(rows, slice):
        return np.arange(*rows.indices(num_rows))
    index = on_host(rows)
    if index.ndim == 1 and index.dtype.kind == "b":
        if len(index) != num_rows:
            raise ValueError(
                f"a mask of {len(index)} entries cannot select from {num_rows} rows; it needs one entry per row."
            )
        return np.flatnonzero(index)
    if index.shape == (0,):
        return np.empty(0, np.int64)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise ValueError(
            f"rows are selected by a slice, a 1-D list of ints or a boolean mask; found {index.dtype.name} "
            f"{list(index.shape)}."
        )
    outside = (index < -num_rows) | (index >= num_rows)
    if outside.any():
        raise IndexError(f"row {index[outside][0]} does not exist; the table has {num_rows} rows.")
    # After the comparisons, which are exact in every dtype, because a cast wraps uint64. Before the sum, which
    # overflows in int8.
    index = index.astype(np.int64, copy=False)
    return np.where(index < 0, index + num_rows, index)


def order_index(order: Selection, num_rows: int) -> Array:
    """Return the rows as :func:`row_index` does; every row must appear once."""
    index = row_index(order, num_rows)
    if not np.array_equal(np.sort(index), np.arange(num_rows)):
        raise ValueError(
            f"an order of {num_rows} rows names each of them once; found {len(index)} indices, "
            f"{len(np.unique(index))} of them different. "
            f"Use select_idxs to drop or repeat rows."
        )
    return index


def repeat_index(num_rows: int, times: int, *, interleave: bool) -> Array:
    """Return 0 0 1 1 if interleaved, otherwise 0 1 0 1."""
    if times < 0:
        raise ValueError(f"repeat_times is {times}; expected 0 or more.")
    index = np.arange(num_rows)
    return np.repeat(index, times) if interleave else np.tile(index, times)


def names_of(keys: Names | None, default: Iterable[str]) -> list[str]:
    """Return one name or several as a list; ``default`` if there are none."""
    if isinstance(keys, str):
        return [keys]
    return list(default if keys is None else keys)
