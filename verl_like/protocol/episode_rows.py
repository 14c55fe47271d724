"""Rows of the same episode.

An episode whose history was rewritten between turns has several rows. They are adjacent, numbered by ``episode_row``,
and count as one sample. Rows without ``episode_row`` are one sample each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verl_like.protocol.selection import Selection
from verl_like.protocol.storage import Array
from verl_like.protocol.table import DataProto

EPISODE_ROW = "episode_row"  # [B] int32: index of the row within its episode, from 0


def episode_numbers(columns: Mapping[str, Any]) -> Array | None:
    """Return [B] int64: the number of each row's episode, from 0; None if every row is one sample.

    Args:
        columns: facts, or columns of a table, whose rows contain whole episodes.
    """
    if EPISODE_ROW not in columns:
        return None
    rows = np.asarray(columns[EPISODE_ROW])
    starts = rows == 0
    is_next = np.append(False, rows[1:] == rows[:-1] + 1)
    assert np.all(starts | is_next), f"the rows of an episode are not whole and adjacent: {EPISODE_ROW} is {rows}"
    numbers: Array = np.cumsum(starts) - 1
    return numbers


def last_rows(columns: Mapping[str, Any]) -> Selection:
    """Select the last row of each episode, which stands for the sample; all rows if every row is one sample."""
    numbers = episode_numbers(columns)
    return slice(None) if numbers is None else np.flatnonzero(np.diff(numbers, append=-1))


def whole_episodes(columns: Mapping[str, Any], rows: Array) -> Array:
    """Return the numbers of all rows of these rows' episodes; the rows themselves if every row is one sample."""
    numbers = episode_numbers(columns)
    return rows if numbers is None else np.flatnonzero(np.isin(numbers, numbers[rows]))


def samples_of(table: DataProto) -> DataProto:
    """Return the last row of each episode; the table itself if every row is one sample."""
    return table.select_idxs(last_rows(table.columns)) if EPISODE_ROW in table.columns else table


def num_samples(columns: Mapping[str, Any]) -> int:
    """Return the number of samples."""
    if EPISODE_ROW not in columns:
        return len(next(iter(columns.values())))
    return int(np.count_nonzero(np.asarray(columns[EPISODE_ROW]) == 0))


def sampled_tokens(columns: Mapping[str, Array]) -> Array:
    """Return [B] int64: the tokens of each row that are learned from, the true entries of its ``response_mask``."""
    return columns["sampled_tokens"] if "sampled_tokens" in columns else columns["response_tokens"]


def over_episode(values: Array, numbers: Array | None) -> Array:
    """Return the sum of each row's episode, [B]; the values themselves if ``numbers`` is None."""
    return values if numbers is None else np.bincount(numbers, weights=values).astype(values.dtype)[numbers]
