"""Ragged: rows of different lengths in one contiguous array."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_like.protocol.storage import (
    Array,
    Values,
    as_tensor,
    dtype_name,
    is_tensor,
    joined,
    on_host,
    packed,
    same,
    taken,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# If a copy holds at most SMALL tokens, or fewer than SHORT_RUN per run, one gather is faster than one copy per run.
SMALL = 4096
SHORT_RUN = 256


class Ragged:
    """Rows of different lengths in one contiguous array.

    Args:
        values: [K] all rows, concatenated: numbers or bools, held by numpy or by torch.
        offsets: [B + 1] int64, always numpy; row i is ``values[offsets[i]:offsets[i + 1]]``.

    Raises:
        ValueError: for values that are not numbers, or offsets that do not run from 0 to K.
    """

    __slots__ = ("offsets", "values")
    __hash__ = None  # type: ignore[assignment]

    # Any: a numpy array or a torch tensor, as the caller passed it; the caller knows which.
    values: Any
    offsets: Array

    def __init__(self, values: Values, offsets: Array) -> None:
        if values.ndim != 1 or offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(values):
            raise ValueError(
                f"a ragged column needs 1-D values and offsets that run from 0 to len(values); found values of shape "
                f"{list(values.shape)} and offsets {offsets[:1]}..{offsets[-1:]}. Use Ragged.from_rows(rows)."
            )
        if (offsets[1:] < offsets[:-1]).any():
            row = int(np.argmax(offsets[1:] < offsets[:-1]))
            raise ValueError(
                f"row {row} of a ragged column would have {offsets[row + 1] - offsets[row]} tokens; expected offsets "
                "that do not decrease."
            )
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biufc":
            raise ValueError(
                f"a ragged column holds numbers or bools; found {dtype_name(values)}. Put other things into a list."
            )
        self.values = values
        self.offsets = offsets.astype(np.int64, copy=False)

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any] | Array], dtype: str) -> Ragged:
        """Make a numpy token column of ``rows``, which are lists or arrays."""
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        return cls.from_lengths(np.concatenate(arrays) if arrays else np.empty(0, dtype), [len(a) for a in arrays])

    @classmethod
    def from_lengths(cls, values: Values, lengths: Sequence[int] | Values) -> Ragged:
        """Split ``values`` [K] into rows of these lengths."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(on_host(lengths), out=offsets[1:])
        return cls(values, offsets)

    @property
    def lengths(self) -> Array:
        """Length of each row, [B] int64."""
        return np.diff(self.offsets)

    @property
    def dtype(self) -> Any:
        """The dtype of the values: numpy's, or torch's if torch holds them."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        """Return row ``row``, counted from 0, as a view."""
        row = int(row)  # numpy's uint8 overflows after 255
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Compare rows, dtypes and bits, whether numpy or torch holds them."""
        return (
            isinstance(other, Ragged)
            and np.array_equal(self.offsets, other.offsets)
            and same(self.values, other.values)
        )

    def __repr__(self) -> str:
        return f"Ragged({dtype_name(self.values)}, {len(self)} rows, {len(self.values)} tokens)"

    def take(self, rows: Array) -> Ragged:
        """Return a copy of these rows, in this order, that owns its storage."""
        starts = self.offsets[:-1][rows]
        lengths = self.offsets[1:][rows] - starts
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Ragged(_ranges(self.values, starts, lengths, offsets), offsets)

    def count_nonzero(self) -> Array:
        """Return [B] int64: the number of values of each row that are true or not zero."""
        # Differences of a running total; reduceat would misread rows of length 0.
        running = np.zeros(len(self.values) + 1, np.int64)
        np.cumsum(on_host(self.values) != 0, out=running[1:])
        return np.diff(running[self.offsets])

    def view(self, start: int, end: int) -> Ragged:
        """Return rows ``start`` to ``end`` (exclusive), on the same storage."""
        offsets = self.offsets[start : int(end) + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_padded(self, pad: Any = 0, width: int | None = None, side: str = "right") -> Any:
        """Return [B, T] with ``pad`` on the ``side`` ("right" or "left"), held by numpy or torch as the values are.

        Args:
            width: T; by default the length of the longest row.

        Raises:
            ValueError: if a row is longer than ``width``.
        """
        lengths = self.lengths
        longest = int(lengths.max(initial=0))
        width = longest if width is None else width
        if longest > width:
            row = int(lengths.argmax())
            raise ValueError(
                f"row {row} has {longest} tokens, more than width={width}. Cut the rows first, or pad to at least "
                f"{longest}."
            )
        valid = _valid(lengths, width, side)
        if is_tensor(self.values):
            padded = self.values.new_full(valid.shape, pad)
            padded[as_tensor(valid, padded.device)] = self.values
            return padded
        out = np.full(valid.shape, pad, self.values.dtype)
        out[valid] = self.values
        return out

    @classmethod
    def from_padded(cls, padded: Values, lengths: Sequence[int] | Values, side: str = "right") -> Ragged:
        """Invert :meth:`to_padded`: copy ``lengths[i]`` entries of row i of ``padded`` [B, T].

        Raises:
            ValueError: for lengths that are not B numbers from 0 to T.
        """
        lengths = on_host(lengths)
        width = padded.shape[1] if padded.ndim == 2 else 0
        fits = (
            padded.ndim == 2
            and len(lengths) == len(padded)
            and (lengths >= 0).all()
            and int(lengths.max(initial=0)) <= width
        )
        if not fits:
            raise ValueError(
                f"lengths must be one number from 0 to T for each row of a padded [B, T]; found {len(lengths)} "
                f"lengths, the longest "
                f"{int(lengths.max(initial=0))}, for {dtype_name(padded)} {list(padded.shape)}."
            )
        valid = _valid(lengths, width, side)
        return cls.from_lengths(
            padded[as_tensor(valid, padded.device)] if is_tensor(padded) else padded[valid], lengths
        )

    @classmethod
    def from_nested(cls, nested: Tensor, *, name: str) -> Ragged:
        """Copy the rows of a torch nested tensor [B, *] of either layout.

        Raises:
            ValueError: for rows of more than one axis; ``name`` is the column's name, for the message.
        """
        if nested.dim() != 2:
            raise ValueError(
                f"column {name!r} is a nested tensor whose rows have {nested.dim() - 1} axes; expected one, [B, *]. "
                f"Pad it first: torch.nested.to_padded_tensor."
            )
        import torch

        rows = nested.unbind()
        values = torch.cat(rows) if rows else torch.empty(0, dtype=nested.dtype, device=nested.device)
        return cls.from_lengths(values, [len(row) for row in rows])

    def to_nested(self) -> Tensor:
        """Return the rows as a torch nested tensor [B, *] of layout ``jagged``, on the same storage if torch can share
        it.
        """
        import torch

        values = self.values if is_tensor(self.values) else as_tensor(self.values, "cpu")
        return torch.nested.nested_tensor_from_jagged(values, as_tensor(self.offsets, values.device))

    def to(self, device: str | torch.device) -> Ragged:
        """Return a column of the same rows with torch on ``device``."""
        return Ragged(as_tensor(self.values, device), self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of values and offsets."""
        return int(self.values.nbytes + self.offsets.nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ragged, (packed(self.values), packed(self.offsets))

    # Without this, copy would use __reduce__ and lose the device.
    def __copy__(self) -> Ragged:
        return Ragged(self.values, self.offsets)

    def __deepcopy__(self, memo: dict[int, Any]) -> Ragged:
        return Ragged(copy.deepcopy(self.values, memo), copy.deepcopy(self.offsets, memo))


def _valid(lengths: Array, width: int, side: str) -> Array:
    """Return [B, T] bool, true where a padded row holds a value."""
    if side not in ("right", "left"):
        raise ValueError(f"side is {side!r}; expected 'right' or 'left'.")
    column = np.arange(width)
    return column < lengths[:, None] if side == "right" else column + lengths[:, None] >= width


def _ranges(values: Values, starts: Array, lengths: Array, offsets: Array) -> Values:
    """Copy ``lengths[i]`` values from ``starts[i]`` on, for each i; in the result they start at ``offsets[i]``.

    Consecutive rows are copied as one run.
    """
    size = int(offsets[-1])
    shift = starts - offsets[:-1]
    if size > SMALL:
        cuts = np.flatnonzero(shift[1:] != shift[:-1])  # inside a run, source and result advance equally
        if size >= SHORT_RUN * len(cuts):
            firsts = starts[np.concatenate([[0], cuts + 1])].tolist()
            lasts = (starts + lengths)[np.concatenate([cuts, [-1]])].tolist()
            return joined([values[first:last] for first, last in zip(firsts, lasts, strict=True)])
    # One index array instead of a Python loop: the start of each row, repeated, plus the position inside the row.
    return taken(values, np.repeat(shift, lengths) + np.arange(size))
