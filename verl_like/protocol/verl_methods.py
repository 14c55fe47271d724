"""Methods for users of verl that this project itself does not call, and padding to a divisor.

Each function takes the table first and is bound as a method of the same name in :mod:`verl_like.protocol.table`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from verl_like.protocol.base_table import BaseTable
from verl_like.protocol.columns import Column, described, kind_of, taken_rows
from verl_like.protocol.ragged import Ragged
from verl_like.protocol.selection import Names, names_of
from verl_like.protocol.storage import Array, Values, is_tensor, on_host, packed

if TYPE_CHECKING:
    from torch import Tensor

Table = TypeVar("Table", bound=BaseTable)


def slice_rows(table: Table, start: int | None = None, end: int | None = None, step: int | None = None) -> Table:
    """Return every ``step``-th of the rows ``start`` to ``end`` (exclusive)."""
    return table.select_idxs(slice(start, end, step))


def print_size(table: Table, prefix: str = "") -> None:
    """Print one line: MiB of token, fixed and object columns (the last as pickled) and their sum."""
    sizes = dict.fromkeys(("token", "fixed", "object"), 0)
    for column in table.columns.values():
        sizes[kind_of(column)] += (
            len(pickle.dumps(packed(column), protocol=5)) if isinstance(column, list) else column.nbytes
        )
    parts = ", ".join(f"{kind} {size / 2**20:.2f} MiB" for kind, size in sizes.items())
    line = f"{len(table)} rows: {parts}, total {sum(sizes.values()) / 2**20:.2f} MiB"
    print(f"{prefix}, {line}" if prefix else line)  # noqa: T201  (its purpose is to print)


def sample_level_repeat(table: Table, repeat_times: Sequence[int] | Array | Tensor) -> Table:
    """Repeat row i ``repeat_times[i]`` times in a row; ``repeat_times`` [B] ints."""
    return table.select_idxs(_repeat_index(len(table), repeat_times))


def unfold_column_chunks(table: Table, n_split: int, split_keys: Names | None = None) -> Table:
    """Split each row into ``n_split``: ``split_keys`` go from [B, n_split * m, ...] to [B * n_split, m, ...], other
    columns are repeated.

    Raises:
        ValueError: for a split key that is no fixed column, or whose second axis does not divide.
    """
    if n_split < 1:
        raise ValueError(f"n_split is {n_split}; expected at least 1.")
    cut = {name: _unfolded(name, table[name], n_split) for name in names_of(split_keys, [])}
    index = np.repeat(np.arange(len(table)), n_split)
    columns = {name: cut[name] if name in cut else taken_rows(column, index) for name, column in table.columns.items()}
    return type(table)(columns, table.meta_info, len(index))


def make_iterator(
    table: Table,
    mini_batch_size: int,
    epochs: int,
    seed: int | None = None,
    dataloader_kwargs: Mapping[str, Any] | None = None,
) -> Iterator[Table]:
    """Return an iterator over tables of ``mini_batch_size`` rows, all rows ``epochs`` times.

    Args:
        seed: seed of the generator for shuffling and for workers; by default torch's global generator.
        dataloader_kwargs: arguments for torch's DataLoader, for example ``{"shuffle": True}``.

    Raises:
        ValueError: immediately, if the rows do not divide.
    """
    if mini_batch_size < 1 or len(table) % mini_batch_size:
        raise ValueError(
            f"{len(table)} rows do not divide into mini-batches of {mini_batch_size}; pad or drop rows first."
        )
    import torch
    from torch.utils.data import DataLoader

    generator = None if seed is None else torch.Generator().manual_seed(seed)
    loader: DataLoader[Any] = DataLoader(
        range(len(table)),  # type: ignore[arg-type]
        batch_size=mini_batch_size,
        collate_fn=table.select_idxs,
        generator=generator,
        **(dataloader_kwargs or {}),
    )
    return (mini_batch for _ in range(epochs) for mini_batch in loader)


def save_to_disk(table: Table, filepath: str | Path) -> None:
    """Write the table as a pickle, for ``load_from_disk``."""
    with Path(filepath).open("wb") as file:
        pickle.dump(table, file, protocol=5)


def load_from_disk(kind: type[Table], filepath: str | Path) -> Table:
    """Read what ``save_to_disk`` wrote; tensors are loaded to the CPU.

    Reading a pickle can run any code: load only files that you trust.

    Raises:
        ValueError: if the file holds something else.
    """
    with Path(filepath).open("rb") as file:
        try:
            table = pickle.load(file) if file.peek(2)[:2] == b"\x80\x05" else None
        except (pickle.UnpicklingError, EOFError) as error:
            raise ValueError(
                f"{filepath} is truncated or damaged ({error}); expected a DataProto written by save_to_disk."
            ) from error
    if not isinstance(table, kind):
        found = "is no pickle of protocol 5" if table is None else f"holds a {type(table).__name__}"
        raise ValueError(f"{filepath} {found}; expected a DataProto written by save_to_disk.")
    return table


def pad_dataproto_to_divisor(table: Table, size_divisor: int) -> tuple[Table, int]:
    """Repeat rows from the start until ``size_divisor`` divides their number; return the table and the number of rows
    added.

    A table that already divides (an empty one always does) is returned itself.
    """
    if size_divisor < 1:
        raise ValueError(f"size_divisor is {size_divisor}; expected at least 1.")
    num_added = -len(table) % size_divisor
    if num_added == 0:
        return table, 0
    return table.select_idxs(np.arange(len(table) + num_added) % len(table)), num_added


def unpad_dataproto(table: Table, pad_size: int) -> Table:
    """Return the table without its last ``pad_size`` rows; the table itself if that is 0."""
    if not 0 <= pad_size <= len(table):
        raise ValueError(f"pad_size is {pad_size}; expected 0 to {len(table)}, as returned when the table was padded.")
    return table if pad_size == 0 else table.select_idxs(slice(0, len(table) - pad_size))


def _repeat_index(num_rows: int, times: Sequence[int] | Array | Tensor) -> Array:
    """Return an index that repeats row i ``times[i]`` times."""
    counts = on_host(times)
    if counts.shape != (num_rows,) or (num_rows and (counts.dtype.kind not in "iu" or counts.min() < 0)):
        raise ValueError(
            f"repeat_times is {counts.dtype.name} {list(counts.shape)}; expected a count of 0 or more for each of "
            f"{num_rows} rows."
        )
    return np.repeat(np.arange(num_rows), counts.astype(np.int64))


def _unfolded(name: str, column: Column, n_split: int) -> Column:
    """Reshape [B, n_split * m, ...] to [B * n_split, m, ...], as a copy."""
    if isinstance(column, Ragged | list):
        reason = "its rows differ in length" if isinstance(column, Ragged) else "its rows are Python objects"
        raise ValueError(
            f"{described(name, column)} and cannot be split along a second axis, because {reason}; expected a fixed "
            f"column."
        )
    if column.ndim < 2 or column.shape[1] % n_split:
        raise ValueError(f"{described(name, column)}; expected a second axis that divides into {n_split} equal parts.")
    shape = (column.shape[0] * n_split, column.shape[1] // n_split, *column.shape[2:])
    values: Values = column.clone() if is_tensor(column) else column.copy()
    return values.reshape(shape)
