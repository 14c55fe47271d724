"""Sequence-parallel ranks, which share the tokens of their rows, and the rows of all of them."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

from verl_like.context import current
from verl_like.ops.ulysses import OTHERS, SequenceRanks
from verl_like.protocol import DataProto
from verl_like.telemetry.heartbeat import Heartbeat


def sequence_ranks_of(size: int, *, timeout_s: float) -> SequenceRanks | None:
    """Return the sequence-parallel ranks of this rank, in groups of ``size`` neighbours; None for size 1. Collective.

    Raises:
        ValueError: if ``size`` does not divide the number of ranks.
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
        group = dist.new_group(ranks, timeout=timedelta(seconds=timeout_s))  # every rank creates every group
        if rank in ranks:
            found = SequenceRanks(group=group, size=size, index=rank - first)
    return found


def shared_rows(rows: DataProto, sequence_ranks: SequenceRanks | None) -> tuple[DataProto, slice]:
    """Return the rows of all ranks that share tokens with this rank, and the slice of this rank's rows. Collective
    among these.
    """
    if sequence_ranks is None:
        return rows, slice(0, len(rows))
    parts: list[DataProto] = [rows] * sequence_ranks.size
    with current(Heartbeat).waiting(OTHERS):
        dist.all_gather_object(parts, rows, group=sequence_ranks.group)
    before = sum(len(part) for part in parts[: sequence_ranks.index])
    filled = [part for part in parts if len(part)]  # a table without rows may lack columns
    return (DataProto.concat(filled) if filled else rows), slice(before, before + len(rows))
