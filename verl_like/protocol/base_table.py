"""BaseTable: token, fixed and object columns with one entry per row, with storage, checks, selection and pickling."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from verl_like.protocol.columns import (
    FEATURE_COLUMNS,
    Column,
    as_object_column,
    as_tensor_column,
    described,
    kind_of,
    moved,
    normalised,
    same_column,
    taken_rows,
    viewed_rows,
)
from verl_like.protocol.ragged import Ragged
from verl_like.protocol.selection import Names, Selection, names_of, row_index
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


class BaseTable:
    """Columns with the same number of rows: their storage, checks, selection, comparison and pickling.

    :class:`verl_like.protocol.table.DataProto` documents the arguments and adds the rest of its methods.
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
        """Raise ValueError if columns differ in their number of rows, as they may after a change of ``columns``."""
        if len({len(column) for column in self.columns.values()}) > 1:
            found = "; ".join(
                f"{described(name, column)} and has {len(column)} rows" for name, column in self.columns.items()
            )
            raise ValueError(f"columns differ in rows: {found}. Every column of a DataProto has one entry per row.")

    # Access.

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else self._rows_without_columns

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    @property
    def batch(self) -> MutableMapping[str, Column]:
        """The token and fixed columns, as a view: assignments and deletions change the table."""
        return ColumnView(self, name="batch", kinds=("token", "fixed"), convert=as_tensor_column)

    @property
    def non_tensor_batch(self) -> MutableMapping[str, Column]:
        """The object columns, each a list, as a view: assignments and deletions change the table."""
        return ColumnView(self, name="non_tensor_batch", kinds=("object",), convert=as_object_column)

    @overload
    def __getitem__(self, key: str) -> Column: ...

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> DataProtoItem: ...

    @overload
    def __getitem__(self, key: Selection) -> Self: ...

    def __getitem__(self, key: str | int | np.integer[Any] | Selection) -> Column | DataProtoItem | Self:
        """Return a column by its name, a row by its index, or a table of some rows as in :meth:`select_idxs`."""
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
        """Return a token column; raise ValueError with a description if it is none."""
        column = self.columns.get(name)
        if not isinstance(column, Ragged):
            found = f"there is no column {name!r}" if column is None else described(name, column)
            raise ValueError(f"{found}; expected a token column. Token columns are {self._names_of('token')}.")
        return column

    def __eq__(self, other: object) -> bool:
        """Compare rows, names, kinds, dtypes, shapes and bits (NaN equals NaN); objects and meta_info compare by
        ``==``.

        Neither the order of the columns matters, nor whether numpy or torch holds them.

        Raises:
            RecursionError: for a ``meta_info`` or an object that contains itself.
        """
        if not isinstance(other, BaseTable):
            return NotImplemented
        return (
            len(self) == len(other)
            and self.columns.keys() == other.columns.keys()
            and all(same_column(column, other.columns[name]) for name, column in self.columns.items())
            and same(self.meta_info, other.meta_info)
        )

    def __repr__(self) -> str:
        found = "; ".join(described(name, column) for name, column in self.columns.items())
        return f"{type(self).__name__} of {len(self)} rows: {found or 'no columns'}; meta_info {sorted(self.meta_info)}"

    @property
    def nbytes(self) -> int:
        """Bytes of the token and fixed columns."""
        return sum(c.nbytes for c in self.columns.values() if not isinstance(c, list))

    # Selection of rows.

    def select_idxs(self, idxs: Selection) -> Self:
        """Return these rows, in this order (a slice, indices or a boolean mask), as a table that owns its storage.

        Raises:
            IndexError: for an index outside the table.
            ValueError: for a mask of another length than the table.
        """
        index = row_index(idxs, len(self))
        columns = {name: taken_rows(column, index) for name, column in self.columns.items()}
        return type(self)(columns, self.meta_info, len(index))

    def view(self, start: int, end: int) -> Self:
        """Return rows ``start`` to ``end`` (exclusive) as a view: nothing is copied, and writes to an array change both
        tables.

        The view keeps the whole storage alive, but its pickle contains only its own rows.
        """
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"rows {start} to {end} do not all exist; the table has {len(self)} rows.")
        columns = {name: viewed_rows(column, start, end) for name, column in self.columns.items()}
        return type(self)(columns, self.meta_info, end - start)

    # Selection of columns.

    def only(self, names: Names) -> Self:
        """Return a table of only these columns, of any kind; nothing is copied."""
        return type(self)({name: self._column(name) for name in names_of(names, [])}, self.meta_info, len(self))

    def with_features(self, names: Iterable[str]) -> Self:
        """Return a table that also has those of these columns of features that this one lacks: an empty dict per row.

        Nothing is copied.
        """
        missing = sorted(FEATURE_COLUMNS.intersection(names) - self.columns.keys())
        if not missing:
            return self
        none: dict[str, Column] = {name: [{} for _ in range(len(self))] for name in missing}
        return type(self)({**self.columns, **none}, self.meta_info, len(self))

    def remove(self, names: Iterable[str]) -> None:
        """Remove existing columns from this table, which keeps its number of rows."""
        self._rows_without_columns = len(self)
        for name in names:
            del self.columns[name]

    def union(self, other: BaseTable) -> Self:
        """Add the columns and the ``meta_info`` of another table to this one; nothing is overwritten.

        Raises:
            ValueError: for a column in both tables, because every column has one producer; for a ``meta_info`` entry in
                which they differ; or for other rows (a table without columns and rows has only ``meta_info``, and fits
                any).
        """
        for name, column in self.columns.items():
            if name in other.columns:
                raise ValueError(
                    f"both tables have a {name!r}: here {described(name, column)}, there "
                    f"{described(name, other.columns[name])}; "
                    f"union does not overwrite. Pop or rename one of them first."
                )
        meta_info = united_meta_info(self.meta_info, other.meta_info)
        united = type(self)({**self.columns, **other.columns}, num_rows=_num_rows_without_columns((self, other)))
        self.columns.update(united.columns)
        self._rows_without_columns = len(united)
        self.meta_info.update(meta_info)
        return self

    def to(self, device: str | torch.device) -> Self:
        """Move the token and fixed columns of this table to ``device``, as torch tensors."""
        self.columns.update({name: moved(name, column, device) for name, column in self.columns.items()})
        return self

    # Pickling.

    def __reduce__(self) -> tuple[Any, ...]:
        seen: dict[int, Any] = {}
        return type(self), (packed(self.columns, seen), packed(self.meta_info, seen), len(self))

    # Without this, copy would use __reduce__ and lose the device.
    def __copy__(self) -> Self:
        return type(self)(self.columns, self.meta_info, len(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(copy.deepcopy(self.columns, memo), copy.deepcopy(self.meta_info, memo), len(self))

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


def _sides_joined(
    columns: Mapping[str, Column], batch: Mapping[str, Column] | None, non_tensor_batch: Mapping[str, Column] | None
) -> dict[str, Column]:
    # A TensorDict cannot be converted to bool.
    tensors = {} if batch is None else dict(batch.items())
    non_tensors = {} if non_tensor_batch is None else non_tensor_batch
    names = [*columns, *tensors, *non_tensors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"columns {twice} are in tensors and in non_tensors; expected each in one of them.")
    fixed = {name: as_tensor_column(name, column) for name, column in tensors.items()}
    objects = {name: as_object_column(name, column) for name, column in non_tensors.items()}
    return {**columns, **fixed, **objects}


def _num_rows_without_columns(tables: Sequence[BaseTable]) -> int | None:
    """Return the number of rows of the tables that have rows but no columns; None if there are none."""
    counts = {len(table) for table in tables if len(table) and not table.columns}
    if len(counts) > 1:
        raise ValueError(f"tables without columns have {sorted(counts)} rows; expected the same in each.")
    return next(iter(counts), None)


def united_meta_info(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    for name in own.keys() & other.keys():
        if not same(own[name], other[name]):
            raise ValueError(
                f"tables differ in meta_info {name!r}: {own[name]!r} and {other[name]!r}; nothing is overwritten. "
                f"Remove it from one of them first."
            )
    return {**own, **other}
