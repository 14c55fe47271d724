"""ColumnView: the columns of one kind as a mapping, for ``table.batch`` and ``table.non_tensor_batch``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Protocol

from verl_like.protocol.columns import Column, described, kind_of


class HasColumns(Protocol):
    """What a view requires of its table."""

    columns: dict[str, Column]

    def __len__(self) -> int: ...

    def remove(self, names: Iterable[str]) -> None: ...


class ColumnView(MutableMapping[str, Column]):
    """Columns of some kinds in a table, as a mapping; assignments and deletions change the table.

    Args:
        table: the table whose columns are shown and changed in place.
        name: name of this view, for messages.
        kinds: the kinds of column that the view shows.
        convert: converts an assigned value to a column of these kinds, or raises.
    """

    def __init__(
        self, table: HasColumns, *, name: str, kinds: tuple[str, ...], convert: Callable[[str, Column], Column]
    ) -> None:
        self._table = table
        self._columns = table.columns
        self._name = name
        self._kinds = kinds
        self._convert = convert

    def __getitem__(self, name: str) -> Column:
        column = self._columns.get(name)
        if column is not None and kind_of(column) in self._kinds:
            return column
        elsewhere = f"; {described(name, column)}" if column is not None else ""
        raise KeyError(f"{self._name} has no column {name!r}{elsewhere}; it has {list(self)}")

    def __setitem__(self, name: str, column: Column) -> None:
        new = self._convert(name, column)
        old = self._columns.get(name)
        if old is not None and kind_of(old) not in self._kinds:
            raise ValueError(
                f"{described(name, old)}, which is not in {self._name}; delete it there before its name is used here."
            )
        # The only column may change its length; a table without columns keeps its number of rows.
        num_rows = 0 if list(self._columns) == [name] else len(self._table)
        if (num_rows or self._columns.keys() - {name}) and num_rows != len(new):
            raise ValueError(f"{described(name, new)} and has {len(new)} rows; expected the table's {num_rows} rows.")
        self._columns[name] = new

    def __delitem__(self, name: str) -> None:
        self[name]
        self._table.remove([name])

    def __iter__(self) -> Iterator[str]:
        return (name for name, column in self._columns.items() if kind_of(column) in self._kinds)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{self._name} of {[described(name, column) for name, column in self.items()]}"
