"""Ranks that share the tokens of their rows: who they are, and the rows of all of them."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

from verl_like.ops.ulysses import OTHERS, Sharers
from verl_like.protocol import DataProto
from verl_like.telemetry.heartbeat import HEARTBEAT


def sharers_of(size: int, *, timeout_s: float) -> Sharers | None:
    """Those of this rank, in groups of ``size`` neighbours; None for 1. Collective.

    Raises:
        ValueError: they do not divide the ranks.
    """
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if size == 1:
        return None
    if world_size % size:
        raise ValueError(
            f"sequence_parallel_size is {size}, which does not divide the {world_size} ranks. Set it to a divisor."
        )
    found = None
    for first in range(0, world_size, size):
        ranks = list(range(first, first + size))
        group = dist.new_group(ranks, timeout=timedelta(seconds=timeout_s))  # every rank makes every group
        if rank in ranks:
            found = Sharers(group=group, size=size, index=rank - first)
    return found


def shared_rows(rows: DataProto, sharers: Sharers | None) -> tuple[DataProto, slice]:
    """The rows of all that share tokens with this rank, and which of them are its own. Collective among these."""
    if sharers is None:
        return rows, slice(0, len(rows))
    parts: list[DataProto] = [rows] * sharers.size
    with HEARTBEAT.waiting(OTHERS):
        dist.all_gather_object(parts, rows, group=sharers.group)
    before = sum(len(part) for part in parts[: sharers.index])
    filled = [part for part in parts if len(part)]  # one without rows may lack columns
    return (DataProto.concat(filled) if filled else rows), slice(before, before + len(rows))
