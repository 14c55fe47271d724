"""Convert a table to a TensorDict and back, for code written for verl's tables. The package tensordict is optional."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from verl_like.protocol.base_table import BaseTable
from verl_like.protocol.columns import Column, described, moved
from verl_like.protocol.ragged import Ragged
from verl_like.protocol.storage import is_tensor

if TYPE_CHECKING:
    from tensordict import TensorDict

Table = TypeVar("Table", bound=BaseTable)


def to_tensordict(table: BaseTable) -> TensorDict:
    """Return the table as a TensorDict of batch size [B].

    A fixed column becomes a tensor, which shares memory with the table's if possible. A token column becomes a nested
    tensor [B, *] of layout ``jagged``, like verl's own packed columns. An object column becomes a NonTensorStack, a
    fact of ``meta_info`` a NonTensorData.

    Raises:
        ValueError: if tensordict is not installed, a column and a fact have the same name, torch lacks a column's
            dtype, or an object column has no rows.
    """
    tensordict = _imported("to_tensordict")
    twice = sorted(table.columns.keys() & table.meta_info.keys())
    if twice:
        raise ValueError(
            f"{twice} name columns and facts of meta_info, which share one TensorDict; expected different names. "
            f"Rename the columns, or pop the facts first."
        )
    entries = {name: _entry(name, column, tensordict) for name, column in table.columns.items()}
    meta_entries = {name: tensordict.NonTensorData(value) for name, value in table.meta_info.items()}
    return tensordict.TensorDict({**entries, **meta_entries}, batch_size=[len(table)])


def from_tensordict(kind: type[Table], tensor_dict: TensorDict, meta_info: Mapping[str, Any] | None = None) -> Table:
    """Return the table of a TensorDict.

    Tensors become fixed columns on their own storage, nested tensors [B, *] become token columns (copied), a
    NonTensorStack an object column, and the value of a NonTensorData a fact of ``meta_info``.

    Args:
        kind: the class of the table.
        tensor_dict: its first axis is the rows; without a batch size, the first axis of its tensors.
        meta_info: further facts.

    Raises:
        ValueError: if tensordict is not installed, an entry is itself a TensorDict, or a fact is given twice and
            differs.
    """
    tensordict = _imported("from_tensordict")
    columns: dict[str, Column] = {}
    of_table: dict[str, Any] = {}
    for name, entry in tensor_dict.items():
        if is_tensor(entry):
            columns[name] = entry
        elif isinstance(entry, tensordict.NonTensorStack):
            columns[name] = entry.tolist()
        elif isinstance(entry, tensordict.NonTensorData):
            of_table[name] = entry.data
        else:
            raise ValueError(
                f"entry {name!r} of the TensorDict is a {type(entry).__name__}; expected a tensor, a NonTensorStack or "
                f"a NonTensorData. Flatten it first: tensor_dict.flatten_keys()."
            )
    num_rows = int(tensor_dict.batch_size[0]) if len(tensor_dict.batch_size) else None
    return kind(columns, of_table, num_rows).union(kind(meta_info=meta_info))


def _entry(name: str, column: Column, tensordict: Any) -> Any:
    if isinstance(column, list):
        if not column:
            raise ValueError(
                f"{described(name, column)} without rows, which tensordict 0.10 cannot stack; expected at least one. "
                f"Pop the column first."
            )
        return tensordict.NonTensorStack(*map(tensordict.NonTensorData, column))
    is_torchs = is_tensor(column.values if isinstance(column, Ragged) else column)
    held = column if is_torchs else moved(name, column, "cpu")
    return held.to_nested() if isinstance(held, Ragged) else held


def _imported(method: str) -> Any:
    try:
        import tensordict
    except ModuleNotFoundError as error:
        raise ValueError(
            f"DataProto.{method} needs the package tensordict, which is not installed. Run `pip install "
            f"'tensordict>=0.10'`, or pass columns: DataProto.from_dict(tensors, non_tensors, meta_info)."
        ) from error
    return tensordict
