"""DataProto: token, fixed and object columns with one entry per row, and what can be done to all of them at once."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from verl_like.protocol import folding, tensordicts, verl_methods
from verl_like.protocol.columns import (
    Column,
    as_object_column,
    as_tensor_column,
    check_column,
    concatenated,
    described,
    kind_of,
    moved,
    normalised,
    same_column,
    taken_rows,
    viewed_rows,
)
from verl_like.protocol.ragged import Ragged
from verl_like.protocol.rows import Names, Selection, names_of, order_index, repeat_index, row_index
from verl_like.protocol.storage import packed, same
from verl_like.protocol.views import ColumnView

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DataProtoItem:
    """One row: its tensors (a token column's row is [T]), its objects, and the table's ``meta_info``."""

    batch: dict[str, Any]
    non_tensor_batch: dict[str, Any]
    meta_info: dict[str, Any]


class DataProto:
    """A table of token, fixed and object columns with the same number of rows.

    Token and fixed columns lie with numpy, or with torch after :meth:`to`; every method works on both. Methods return
    new tables, except ``to``, ``rename``, ``reorder`` and ``union``, which change this one and return it.

    Args:
        columns: name -> Ragged (token), array or tensor [B, ...] (fixed), list (object); arrays of text or objects
            become lists.
        meta_info: facts about the whole table; every table made from this one gets them too.
        num_rows: of a table without columns; where there are columns, they say it. A table whose columns have all been
            popped, or of which none were selected, still has its rows.
        batch: token and fixed columns by verl's name for them; a TensorDict of tensors is one such mapping.
        non_tensor_batch: object columns by verl's name for them.

    Raises:
        ValueError: when columns disagree on the number of rows, are none, or are named twice or on the wrong side; the
            message names them.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        columns: Mapping[str, Column] | None = None,
        meta_info: Mapping[str, Any] | None = None,
        num_rows: int | None = None,
        *,
        batch: Mapping[str, Column] | None = None,
        non_tensor_batch: Mapping[str, Column] | None = None,
    ) -> None:
        self.columns: dict[str, Column] = {name: normalised(name, column) for name, column in (columns or {}).items()}
        if batch is not None or non_tensor_batch is not None:
            self.columns = _sides_joined(self.columns, batch, non_tensor_batch)
        self.meta_info: dict[str, Any] = dict(meta_info or {})
        self._rows_without_columns = num_rows or 0
        self.check_consistency()
        if num_rows is not None and num_rows != len(self):
            raise ValueError(
                f"num_rows is {num_rows}, but the columns {list(self.columns)} have {len(self)} rows; expected the "
                f"same. Leave num_rows out where there are columns."
            )

    def check_consistency(self) -> None:
        """Raise ValueError where columns differ in their number of rows, as they may after a change of ``columns``."""
        if len({len(column) for column in self.columns.values()}) > 1:
            found = "; ".join(
                f"{described(name, column)} and has {len(column)} rows" for name, column in self.columns.items()
            )
            raise ValueError(f"columns differ in rows: {found}. Every column of a DataProto has one entry per row.")

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, Column] | None = None,
        non_tensors: Mapping[str, Column] | None = None,
        meta_info: Mapping[str, Any] | None = None,
    ) -> DataProto:
        """A table of ``tensors``, which become token and fixed columns, and ``non_tensors``, which become object
        columns.

        Raises:
            ValueError: a name in both, or a column on the wrong side.
        """
        return cls(None, meta_info, batch=tensors, non_tensor_batch=non_tensors)

    @classmethod
    def from_single_dict(cls, data: Mapping[str, Column], meta_info: Mapping[str, Any] | None = None) -> DataProto:
        """A table of columns of any kind, each sorted by what it is."""
        return cls(data, meta_info)

    @staticmethod
    def concat(tables: Sequence[DataProto]) -> DataProto:
        """Rows of all tables, one after the other, with the ``meta_info`` of all; ``metrics`` in it are not joined.

        Raises:
            ValueError: tables that differ in columns, in a column's kind, dtype, trailing shape or place, or in a
                ``meta_info``.
        """
        names = [set(table.columns) for table in tables]
        if any(found != names[0] for found in names):
            raise ValueError(
                f"tables to concatenate differ in columns: {[sorted(found) for found in names]}; expected the same in "
                f"each."
            )
        if not tables:
            return DataProto()
        meta_info: dict[str, Any] = {}
        for table in tables:
            meta_info = _united_meta_info(meta_info, table.meta_info)
        return DataProto(
            {name: concatenated(name, [table.columns[name] for table in tables]) for name in tables[0].columns},
            meta_info,
            sum(map(len, tables)),
        )

    # Looking.

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else self._rows_without_columns

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    @property
    def batch(self) -> MutableMapping[str, Column]:
        """The token and fixed columns; what is set or deleted here is so in the table."""
        return ColumnView(self, name="batch", kinds=("token", "fixed"), convert=as_tensor_column)

    @property
    def non_tensor_batch(self) -> MutableMapping[str, Column]:
        """The object columns, each a list; what is set or deleted here is so in the table."""
        return ColumnView(self, name="non_tensor_batch", kinds=("object",), convert=as_object_column)

    @overload
    def __getitem__(self, key: str) -> Column: ...

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> DataProtoItem: ...

    @overload
    def __getitem__(self, key: Selection) -> DataProto: ...

    def __getitem__(self, key: str | int | np.integer[Any] | Selection) -> Column | DataProtoItem | DataProto:
        """A column by its name, a row by its index, or a table of some rows as in :meth:`select_idxs`."""
        if isinstance(key, str):
            return self._column(key)
        if isinstance(key, int | np.integer):
            [row] = row_index([int(key)], len(self)).tolist()
            return DataProtoItem(
                batch={name: column[row] for name, column in self.batch.items()},
                non_tensor_batch={name: column[row] for name, column in self.non_tensor_batch.items()},
                meta_info=self.meta_info,
            )
        return self.select_idxs(key)

    def ragged(self, name: str) -> Ragged:
        """A token column, or an error that says what the column is."""
        column = self.columns.get(name)
        if not isinstance(column, Ragged):
            found = f"there is no column {name!r}" if column is None else described(name, column)
            raise ValueError(f"{found}; expected a token column. Token columns are {self._names_of('token')}.")
        return column

    def __eq__(self, other: object) -> bool:
        """Equal rows, names, kinds, dtypes, shapes and bits (NaN equals NaN), objects and meta_info equal by ``==``.

        The order of the columns does not matter, nor whether numpy or torch holds them.

        Raises:
            RecursionError: a ``meta_info`` or an object that contains itself.
        """
        if not isinstance(other, DataProto):
            return NotImplemented
        return (
            len(self) == len(other)
            and self.columns.keys() == other.columns.keys()
            and all(same_column(column, other.columns[name]) for name, column in self.columns.items())
            and same(self.meta_info, other.meta_info)
        )

    def __repr__(self) -> str:
        found = "; ".join(described(name, column) for name, column in self.columns.items())
        return f"DataProto of {len(self)} rows: {found or 'no columns'}; meta_info {sorted(self.meta_info)}"

    @property
    def nbytes(self) -> int:
        """Bytes of the token and fixed columns."""
        return sum(c.nbytes for c in self.columns.values() if not isinstance(c, list))

    # Other rows.

    def select_idxs(self, idxs: Selection) -> DataProto:
        """These rows, in this order (a slice, indices or a boolean mask), as a table that owns its storage.

        Raises:
            IndexError: an index outside of the table.
            ValueError: a mask of another length than the table.
        """
        index = row_index(idxs, len(self))
        columns = {name: taken_rows(column, index) for name, column in self.columns.items()}
        return DataProto(columns, self.meta_info, len(index))

    def view(self, start: int, end: int) -> DataProto:
        """Rows ``start`` to ``end`` (excluded) on this table's own storage: no array is copied, and a write into one
        shows in both.

        The view keeps all of the storage alive, but pickles its own rows only.
        """
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"rows {start} to {end} are not all there; the table has {len(self)} rows.")
        columns = {name: viewed_rows(column, start, end) for name, column in self.columns.items()}
        return DataProto(columns, self.meta_info, end - start)

    def chunk(self, chunks: int) -> list[DataProto]:
        """``chunks`` tables of equal size; raises where the rows do not divide."""
        if chunks < 1 or len(self) % chunks:
            raise ValueError(f"{len(self)} rows do not divide into {chunks} equal chunks; pad or drop rows first.")
        size = len(self) // chunks
        return [self.select_idxs(slice(i * size, (i + 1) * size)) for i in range(chunks)]

    def split(self, split_size: int) -> list[DataProto]:
        """Tables of ``split_size`` rows, the last one possibly smaller."""
        if split_size < 1:
            raise ValueError(f"split_size is {split_size} rows; expected at least 1.")
        return [self.select_idxs(slice(i, i + split_size)) for i in range(0, len(self), split_size)]

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> DataProto:
        """Each row ``repeat_times`` times: a a b b when interleaved, else a b a b."""
        return self.select_idxs(repeat_index(len(self), repeat_times, interleave=interleave))

    def reorder(self, indices: Selection) -> DataProto:
        """Put the rows of this table into another order; every row must come once."""
        index = order_index(indices, len(self))
        self.columns.update({name: taken_rows(column, index) for name, column in self.columns.items()})
        return self

    # Other columns.

    def only(self, names: Names) -> DataProto:
        """A table of just these columns, of any kind; nothing is copied."""
        return DataProto({name: self._column(name) for name in names_of(names, [])}, self.meta_info, len(self))

    def select(
        self,
        batch_keys: Names | None = None,
        non_tensor_batch_keys: Names | None = None,
        meta_info_keys: Names | None = None,
    ) -> DataProto:
        """A table of these tensor columns, object columns and facts; None keeps all of a kind. Nothing is copied.

        A table of no columns has as many rows as this one.

        Raises:
            KeyError: a key that is not there.
        """
        tensors = {name: self.batch[name] for name in names_of(batch_keys, self.batch)}
        objects = {name: self.non_tensor_batch[name] for name in names_of(non_tensor_batch_keys, self.non_tensor_batch)}
        meta_info = {name: self._meta(name) for name in names_of(meta_info_keys, self.meta_info)}
        return DataProto({**tensors, **objects}, meta_info, len(self))

    def pop(
        self,
        batch_keys: Names | None = None,
        non_tensor_batch_keys: Names | None = None,
        meta_info_keys: Names | None = None,
    ) -> DataProto:
        """Remove these tensor columns, object columns and facts, and return them as a table; None removes none of a
        kind.

        This table keeps its number of rows, even without columns; a table of facts alone that is returned has none.

        Raises:
            KeyError: a key that is not there; the table is left as it was.
        """
        popped = self.select(
            names_of(batch_keys, []), names_of(non_tensor_batch_keys, []), names_of(meta_info_keys, [])
        )
        self.remove(popped.columns)
        for name in popped.meta_info:
            del self.meta_info[name]
        return popped if popped.columns else DataProto(meta_info=popped.meta_info)

    def remove(self, names: Iterable[str]) -> None:
        """Take columns that are there out of this table, which keeps its number of rows."""
        self._rows_without_columns = len(self)
        for name in names:
            del self.columns[name]

    def rename(self, old_keys: Names, new_keys: Names) -> DataProto:
        """Give columns of this table other names, one or several at once (which may swap).

        Raises:
            KeyError: an old name that is not there.
            ValueError: a new name that another column has.
        """
        old, new = names_of(old_keys, []), names_of(new_keys, [])
        if len(old) != len(new) or len(set(old)) != len(old):
            raise ValueError(f"names {old} cannot become {new}; expected a new name for each, and each once.")
        for name in old:
            self._column(name)
        renamed = dict(zip(old, new, strict=True))
        names = [renamed.get(name, name) for name in self.columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            found = [
                described(name, column) for name, column in self.columns.items() if renamed.get(name, name) == twice
            ]
            raise ValueError(
                f"two columns would be named {twice!r}: {'; '.join(found)}. Pop or rename one of them first."
            )
        columns = list(self.columns.values())
        self.columns.clear()
        self.columns.update(zip(names, columns, strict=True))
        return self

    def union(self, other: DataProto) -> DataProto:
        """Add the columns and the ``meta_info`` of another table to this one; nothing is overwritten.

        Raises:
            ValueError: a column that both have, because every column has one producer; a fact on which they differ;
                other rows (a table without columns and rows has facts alone, and fits any).
        """
        for name, column in self.columns.items():
            if name in other.columns:
                raise ValueError(
                    f"both tables have a {name!r}: here {described(name, column)}, there "
                    f"{described(name, other.columns[name])}; "
                    f"union does not overwrite. Pop or rename one of them first."
                )
        meta_info = _united_meta_info(self.meta_info, other.meta_info)
        united = DataProto({**self.columns, **other.columns}, num_rows=_num_rows_told((self, other)))
        self.columns.update(united.columns)
        self._rows_without_columns = len(united)
        self.meta_info.update(meta_info)
        return self

    def to(self, device: str | torch.device) -> DataProto:
        """Move the token and fixed columns of this table to ``device``, as torch tensors."""
        self.columns.update({name: moved(name, column, device) for name, column in self.columns.items()})
        return self

    # Methods that users of verl know and nothing of ours calls.

    slice = verl_methods.slice_rows
    print_size = verl_methods.print_size
    sample_level_repeat = verl_methods.sample_level_repeat
    unfold_column_chunks = verl_methods.unfold_column_chunks
    make_iterator = verl_methods.make_iterator
    save_to_disk = verl_methods.save_to_disk
    load_from_disk = staticmethod(verl_methods.load_from_disk)
    fold_batch_dim = folding.fold_batch_dim
    unfold_batch_dim = folding.unfold_batch_dim
    to_tensordict = tensordicts.to_tensordict
    from_tensordict = staticmethod(tensordicts.from_tensordict)

    # Pickles.

    def __reduce__(self) -> tuple[Any, ...]:
        seen: dict[int, Any] = {}
        return DataProto, (packed(self.columns, seen), packed(self.meta_info, seen), len(self))

    # copy would otherwise go through __reduce__, and lose the device on its way.
    def __copy__(self) -> DataProto:
        return DataProto(self.columns, self.meta_info, len(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> DataProto:
        return DataProto(copy.deepcopy(self.columns, memo), copy.deepcopy(self.meta_info, memo), len(self))

    def _column(self, name: str) -> Column:
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; columns are {list(self.columns)}")
        return self.columns[name]

    def _meta(self, name: str) -> Any:
        if name not in self.meta_info:
            raise KeyError(f"meta_info has no {name!r}; it has {list(self.meta_info)}")
        return self.meta_info[name]

    def _names_of(self, kind: str) -> list[str]:
        return [name for name, column in self.columns.items() if kind_of(column) == kind]


def check_columns(table: DataProto) -> None:
    """Every column named in COLUMNS has the kind and the dtype it has there; other columns are the user's own.

    Raises:
        ValueError: one that has not, with what was found and what was expected.
    """
    for name, column in table.columns.items():
        check_column(name, column)


def _sides_joined(
    columns: Mapping[str, Column], batch: Mapping[str, Column] | None, non_tensor_batch: Mapping[str, Column] | None
) -> dict[str, Column]:
    # A TensorDict has no truth value.
    tensors = {} if batch is None else dict(batch.items())
    non_tensors = {} if non_tensor_batch is None else non_tensor_batch
    names = [*columns, *tensors, *non_tensors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"columns {twice} are in tensors and in non_tensors; expected each in one of them.")
    fixed = {name: as_tensor_column(name, column) for name, column in tensors.items()}
    objects = {name: as_object_column(name, column) for name, column in non_tensors.items()}
    return {**columns, **fixed, **objects}


def _num_rows_told(tables: Sequence[DataProto]) -> int | None:
    """How many rows those of the tables say that have rows and no columns; None where there is none of them."""
    told = {len(table) for table in tables if len(table) and not table.columns}
    if len(told) > 1:
        raise ValueError(f"tables without columns have {sorted(told)} rows; expected the same in each.")
    return next(iter(told), None)


def _united_meta_info(mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    for name in mine.keys() & other.keys():
        if not same(mine[name], other[name]):
            raise ValueError(
                f"tables differ in meta_info {name!r}: {mine[name]!r} and {other[name]!r}; nothing is overwritten. "
                f"Remove it from one of them first."
            )
    return {**mine, **other}
