"""DataProto: a table of responses with the methods that users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import verl_like.protocol.folding as folding
import verl_like.protocol.tensordicts as tensordicts
import verl_like.protocol.verl_methods as verl_methods
from verl_like.protocol.base_table import BaseTable, united_meta_info
from verl_like.protocol.columns import FEATURE_COLUMNS, Column, check_column, concatenated, described, taken_rows
from verl_like.protocol.selection import Names, Selection, names_of, order_index, repeat_index

if TYPE_CHECKING:
    from tensordict import TensorDict


class DataProto(BaseTable):
    """A table of token, fixed and object columns with the same number of rows.

    Token and fixed columns are numpy arrays, or torch tensors after :meth:`to`; every method works on both. Methods
    return new tables, except ``to``, ``rename``, ``reorder`` and ``union``, which change this table and return it.

    Args:
        columns: name -> Ragged (token), array or tensor [B, ...] (fixed), list (object); arrays of text or objects
            become lists.
        meta_info: facts about the whole table; every table derived from this one inherits them.
        num_rows: number of rows of a table without columns; otherwise the columns determine it. A table whose columns
            have all been popped, or of which none were selected, still has its rows.
        batch: verl's name for token and fixed columns; may be a TensorDict of tensors.
        non_tensor_batch: verl's name for object columns.

    Raises:
        ValueError: if columns differ in the number of rows, are not valid columns, or are named twice or in the wrong
            argument; the message names them.
    """

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, Column] | None = None,
        non_tensors: Mapping[str, Column] | None = None,
        meta_info: Mapping[str, Any] | None = None,
    ) -> DataProto:
        """Make a table of ``tensors``, which become token and fixed columns, and ``non_tensors``, which become object
        columns.

        Raises:
            ValueError: for a name in both, or a column in the wrong argument.
        """
        return cls(None, meta_info, batch=tensors, non_tensor_batch=non_tensors)

    @classmethod
    def from_single_dict(cls, data: Mapping[str, Column], meta_info: Mapping[str, Any] | None = None) -> DataProto:
        """Make a table of columns of any kind; each column's kind follows from its type."""
        return cls(data, meta_info)

    @staticmethod
    def concat(tables: Sequence[DataProto]) -> DataProto:
        """Concatenate the rows of all tables, and unite their ``meta_info``; ``metrics`` in it are not joined.

        A table without a column of features that another has gets rows without features.

        Raises:
            ValueError: for tables that differ in columns, in a column's kind, dtype, trailing shape or storage, or in a
                ``meta_info`` entry.
        """
        with_features = {name for table in tables for name in table.columns if name in FEATURE_COLUMNS}
        tables = [table.with_features(with_features) for table in tables]
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
            meta_info = united_meta_info(meta_info, table.meta_info)
        return DataProto(
            {name: concatenated(name, [table.columns[name] for table in tables]) for name in tables[0].columns},
            meta_info,
            sum(map(len, tables)),
        )

    # Selection of rows.

    def chunk(self, chunks: int) -> list[DataProto]:
        """Return ``chunks`` tables of equal size; raise ValueError if the rows do not divide."""
        if chunks < 1 or len(self) % chunks:
            raise ValueError(f"{len(self)} rows do not divide into {chunks} equal chunks; pad or drop rows first.")
        size = len(self) // chunks
        return [self.select_idxs(slice(i * size, (i + 1) * size)) for i in range(chunks)]

    def split(self, split_size: int) -> list[DataProto]:
        """Return tables of ``split_size`` rows, the last one possibly smaller."""
        if split_size < 1:
            raise ValueError(f"split_size is {split_size} rows; expected at least 1.")
        return [self.select_idxs(slice(i, i + split_size)) for i in range(0, len(self), split_size)]

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> DataProto:
        """Repeat each row ``repeat_times`` times: a a b b if interleaved, otherwise a b a b."""
        return self.select_idxs(repeat_index(len(self), repeat_times, interleave=interleave))

    def reorder(self, indices: Selection) -> DataProto:
        """Put the rows of this table into another order; every row must appear once."""
        index = order_index(indices, len(self))
        self.columns.update({name: taken_rows(column, index) for name, column in self.columns.items()})
        return self

    # Selection of columns.

    def select(
        self,
        batch_keys: Names | None = None,
        non_tensor_batch_keys: Names | None = None,
        meta_info_keys: Names | None = None,
    ) -> DataProto:
        """Return a table of these tensor columns, object columns and facts; None keeps all of a kind. Nothing is
        copied.

        A table without columns has as many rows as this one.

        Raises:
            KeyError: for a key that does not exist.
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

        This table keeps its number of rows, even without columns; a returned table with only facts has none.

        Raises:
            KeyError: for a key that does not exist; the table then stays unchanged.
        """
        popped = self.select(
            names_of(batch_keys, []), names_of(non_tensor_batch_keys, []), names_of(meta_info_keys, [])
        )
        self.remove(popped.columns)
        for name in popped.meta_info:
            del self.meta_info[name]
        return popped if popped.columns else DataProto(meta_info=popped.meta_info)

    def rename(self, old_keys: Names, new_keys: Names) -> DataProto:
        """Rename columns of this table, one or several at once (which may swap).

        Raises:
            KeyError: for an old name that does not exist.
            ValueError: for a new name that another column has.
        """
        old, new = names_of(old_keys, []), names_of(new_keys, [])
        if len(old) != len(new) or len(set(old)) != len(old):
            raise ValueError(f"names {old} cannot become {new}; expected one different new name for each.")
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

    # Methods for users of verl that this project itself does not call.

    slice = verl_methods.slice_rows
    print_size = verl_methods.print_size
    sample_level_repeat = verl_methods.sample_level_repeat
    unfold_column_chunks = verl_methods.unfold_column_chunks
    make_iterator = verl_methods.make_iterator
    save_to_disk = verl_methods.save_to_disk
    fold_batch_dim = folding.fold_batch_dim
    unfold_batch_dim = folding.unfold_batch_dim
    to_tensordict = tensordicts.to_tensordict

    @classmethod
    def load_from_disk(cls, filepath: str | Path) -> Self:
        """Read what ``save_to_disk`` wrote; see :func:`verl_like.protocol.verl_methods.load_from_disk`."""
        return verl_methods.load_from_disk(cls, filepath)

    @classmethod
    def from_tensordict(cls, tensor_dict: TensorDict, meta_info: Mapping[str, Any] | None = None) -> Self:
        """Make a table from a TensorDict; see :func:`verl_like.protocol.tensordicts.from_tensordict`."""
        return tensordicts.from_tensordict(cls, tensor_dict, meta_info)


def check_columns(table: DataProto) -> None:
    """Check that every column named in COLUMNS has the kind and dtype given there; other columns are the user's own.

    Raises:
        ValueError: for a column that has not, with the kind and dtype found and expected.
    """
    for name, column in table.columns.items():
        check_column(name, column)
