"""DataProto: a table whose rows are responses, and the table of the columns that exist.

A *token column* is ragged: one contiguous array plus row offsets, no padding. A *fixed column* is an array whose
first axis is the rows. An *object column* holds Python objects. Every slice, chunk or selection owns its storage, so
pickling it costs its payload and nothing more.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Selection = slice | Sequence[int] | Array


@dataclass(frozen=True)
class ColumnSpec:
    """What a column holds and who makes it."""

    kind: str  # "token", "fixed" or "object"
    dtype: str
    unit: str
    producer: str


COLUMNS: dict[str, ColumnSpec] = {
    "uid": ColumnSpec("object", "str", "names the prompt in every run", "prompts"),
    "group_id": ColumnSpec("fixed", "int64", "equal for responses to one prompt", "prompts"),
    "prompt_text": ColumnSpec("object", "str", "the rendered prompt", "prompts"),
    "prompt_ids": ColumnSpec("token", "int32", "token ids", "prompts"),
    "response_ids": ColumnSpec("token", "int32", "token ids", "rollout"),
    "response_mask": ColumnSpec("token", "bool", "true where the policy chose the token", "rollout"),
    "rollout_log_probs": ColumnSpec("token", "float32", "nats, per response token", "rollout"),
    "old_log_probs": ColumnSpec("token", "float32", "nats, per response token", "old_log_probs"),
    "ref_log_probs": ColumnSpec("token", "float32", "nats, per response token", "ref_log_probs"),
    "values": ColumnSpec("token", "float32", "reward, per response token", "values"),
    "advantages": ColumnSpec("token", "float32", "reward, per response token", "advantages"),
    "returns": ColumnSpec("token", "float32", "reward, per response token", "advantages"),
    "reward_inputs": ColumnSpec("object", "dict", "data_source, ground_truth, extra_info", "prompts"),
}


class Ragged:
    """Rows of different lengths in one contiguous array.

    Args:
        values: [K] all rows, one after the other.
        offsets: [B + 1] int64; row i is ``values[offsets[i]:offsets[i + 1]]``.
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: Array, offsets: Array) -> None:
        if values.ndim != 1 or offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(values):
            raise ValueError(
                f"a ragged column needs 1-D values and offsets that run from 0 to len(values); found values of shape "
                f"{values.shape} and offsets {offsets[:1]}..{offsets[-1:]}. Use Ragged.from_rows(rows)."
            )
        self.values = values
        self.offsets = offsets.astype(np.int64, copy=False)

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any] | Array], dtype: str) -> Ragged:
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        return cls.from_lengths(np.concatenate(arrays) if arrays else np.empty(0, dtype), [len(a) for a in arrays])

    @classmethod
    def from_lengths(cls, values: Array, lengths: Sequence[int] | Array) -> Ragged:
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(values, offsets)

    @property
    def lengths(self) -> Array:
        return np.diff(self.offsets)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Array:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def take(self, rows: Array) -> Ragged:
        """A copy of these rows, in this order, that owns its storage."""
        lengths = self.lengths[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # One index array instead of a Python loop: start of each row, repeated, plus the position inside the row.
        index = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(self.values[index], offsets)

    def to_padded(self, pad: Any = 0, width: int | None = None) -> Array:
        """[B, T] right-padded with ``pad``; T is the longest row unless ``width`` is given."""
        lengths = self.lengths
        out = np.full((len(self), int(lengths.max(initial=0)) if width is None else width), pad, self.dtype)
        out[np.arange(out.shape[1]) < lengths[:, None]] = self.values
        return out

    @classmethod
    def from_padded(cls, padded: Array, lengths: Sequence[int] | Array) -> Ragged:
        """The inverse of :meth:`to_padded`."""
        lengths = np.asarray(lengths)
        return cls.from_lengths(padded[np.arange(padded.shape[1]) < lengths[:, None]], lengths)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.offsets.nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        # A view would drag its base along through pickle protocol 5; own the storage first.
        own = self.values if self.values.base is None else self.values.copy()
        return Ragged, (own, self.offsets)


Column = Ragged | Array | list[Any]


def _rows(column: Column, rows: Array) -> Column:
    if isinstance(column, Ragged):
        return column.take(rows)
    if isinstance(column, list):
        return [column[i] for i in rows]
    return column[rows]


def _joined(parts: list[Column]) -> Column:
    first = parts[0]
    if isinstance(first, Ragged):
        ragged = [p for p in parts if isinstance(p, Ragged)]
        return Ragged.from_lengths(np.concatenate([p.values for p in ragged]), np.concatenate([p.lengths for p in ragged]))
    if isinstance(first, list):
        return [item for p in parts for item in p]
    return np.concatenate([p for p in parts if isinstance(p, np.ndarray)])


@dataclass
class DataProto:
    """A table of token, fixed and object columns with the same number of rows.

    Raises:
        ValueError: when columns disagree on the number of rows; the message names each column and its rows.
    """

    columns: dict[str, Column] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {name: len(column) for name, column in self.columns.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"columns differ in rows: {sizes}; every column of a DataProto has one entry per row.")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @classmethod
    def from_dict(cls, columns: Mapping[str, Column], meta_info: dict[str, Any] | None = None) -> DataProto:
        return cls(dict(columns), dict(meta_info or {}))

    @classmethod
    def concat(cls, tables: Sequence[DataProto]) -> DataProto:
        """Rows of all tables, one after the other; all must have the same columns."""
        names = [set(t.columns) for t in tables]
        if any(n != names[0] for n in names):
            raise ValueError(f"tables to concatenate differ in columns: {[sorted(n) for n in names]}")
        if not tables:
            return cls()
        columns = {name: _joined([t.columns[name] for t in tables]) for name in tables[0].columns}
        return cls(columns, dict(tables[0].meta_info))

    def __getitem__(self, key: str) -> Column:
        return self.columns[key]

    def ragged(self, name: str) -> Ragged:
        """A token column, or an error that says what the column is."""
        column = self.columns.get(name)
        if not isinstance(column, Ragged):
            raise ValueError(f"expected token column {name!r}; found {type(column).__name__}; columns are {sorted(self.columns)}")
        return column

    def select_idxs(self, rows: Selection) -> DataProto:
        """These rows, in this order (a slice, indices or a boolean mask), as a table that owns its storage."""
        index = np.arange(len(self))[rows]
        return DataProto({name: _rows(column, index) for name, column in self.columns.items()}, dict(self.meta_info))

    def select(self, names: Iterable[str]) -> DataProto:
        """These columns."""
        return DataProto({name: self.columns[name] for name in names}, dict(self.meta_info))

    def pop(self, names: Iterable[str]) -> DataProto:
        """Remove these columns and return them as a table."""
        return DataProto({name: self.columns.pop(name) for name in names}, dict(self.meta_info))

    def rename(self, old: str, new: str) -> DataProto:
        """The same table with column ``old`` called ``new``."""
        return DataProto({new if n == old else n: c for n, c in self.columns.items()}, dict(self.meta_info))

    def union(self, other: DataProto) -> DataProto:
        """The columns of both; a column that both have raises, because every column has one producer."""
        shared = set(self.columns) & set(other.columns)
        if shared:
            raise ValueError(f"both tables have {sorted(shared)}; union does not overwrite. Pop or rename one of them first.")
        return DataProto({**self.columns, **other.columns}, {**self.meta_info, **other.meta_info})

    def repeat(self, times: int, interleave: bool = True) -> DataProto:
        """Each row ``times`` times: a a b b when interleaved, else a b a b."""
        index = np.arange(len(self))
        return self.select_idxs(np.repeat(index, times) if interleave else np.tile(index, times))

    def reorder(self, order: Sequence[int] | Array) -> DataProto:
        """The rows in another order."""
        return self.select_idxs(np.asarray(order))

    def chunk(self, chunks: int) -> list[DataProto]:
        """``chunks`` tables of equal size; raises where the rows do not divide."""
        if len(self) % chunks:
            raise ValueError(f"{len(self)} rows do not divide into {chunks} equal chunks; pad or drop rows first.")
        return self.split(len(self) // chunks)

    def split(self, size: int) -> list[DataProto]:
        """Tables of ``size`` rows, the last one possibly smaller."""
        return [self.select_idxs(slice(i, i + size)) for i in range(0, len(self), size)]

    @property
    def nbytes(self) -> int:
        """Bytes of the token and fixed columns."""
        return sum(c.nbytes for c in self.columns.values() if not isinstance(c, list))

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(pickle.dumps(self, protocol=5))

    @classmethod
    def load(cls, path: str | Path) -> DataProto:
        table = pickle.loads(Path(path).read_bytes())
        assert isinstance(table, cls), f"{path} holds a {type(table).__name__}, not a DataProto"
        return table
