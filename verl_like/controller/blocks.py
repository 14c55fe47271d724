"""Cut rows into blocks for the object store: whole groups, neither too small nor too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from verl_like.controller.remote_batch import Facts
from verl_like.protocol import Array, DataProto, bytes_per_token

Block: TypeAlias = "slice | Array"  # rows of a table

MIN_BYTES = 256 * 1024  # Ray inlines results below 100 KiB into the driver
MAX_BLOCKS = 4  # per rank and stage: each costs a millisecond, and a reference on the driver
MAX_STREAM_BLOCKS = 8  # per rank's rollout: enough for scoring to start early


def cut(facts: Facts, rows: Array, columns: Iterable[str]) -> list[slice]:
    """Return slices of ``rows``, one per block: whole groups, and at least ``MIN_BYTES`` of ``columns`` each.

    Rows whose token counts are not known yet (prompts) form one block.
    """
    if "response_tokens" not in facts or len(rows) == 0:
        return [slice(0, len(rows))]
    ends = np.cumsum(facts["response_tokens"][rows] * bytes_per_token(columns))
    group = facts["group_id"][rows]
    last_of_group = np.flatnonzero(np.r_[group[1:] != group[:-1], True])
    target = max(MIN_BYTES, int(ends[-1]) // MAX_BLOCKS)
    cuts, begin = [], 0
    for row in last_of_group.tolist():
        if ends[row] - begin >= target:
            cuts.append(row + 1)
            begin = int(ends[row])
    # The remainder joins the last block.
    stops = [*cuts[:-1], len(rows)]
    return [slice(a, b) for a, b in zip([0, *stops[:-1]], stops, strict=True)]


def blocks_of(table: DataProto, blocks: Sequence[Block]) -> list[DataProto]:
    """Return one table for each block of rows."""
    return [table.view(b.start, b.stop) if isinstance(b, slice) else table.select_idxs(b) for b in blocks]
