"""Rows added so that a table divides, and taken away again."""

from __future__ import annotations

import numpy as np

from verl_like.protocol.table import DataProto


def pad_dataproto_to_divisor(table: DataProto, size_divisor: int) -> tuple[DataProto, int]:
    """The table with rows repeated from its start until ``size_divisor`` divides their number, and how many were added.

    A table that divides already (an empty one always does) is returned itself.
    """
    if size_divisor < 1:
        raise ValueError(f"size_divisor is {size_divisor}; expected at least 1.")
    num_added = -len(table) % size_divisor
    if num_added == 0:
        return table, 0
    return table.select_idxs(np.arange(len(table) + num_added) % len(table)), num_added


def unpad_dataproto(table: DataProto, pad_size: int) -> DataProto:
    """The table without its last ``pad_size`` rows; itself where that is 0."""
    if not 0 <= pad_size <= len(table):
        raise ValueError(
            f"pad_size is {pad_size}; expected a number of the table's {len(table)} rows, as the padding reported it."
        )
    return table if pad_size == 0 else table.slice(0, len(table) - pad_size)
