"""Which rank works on which rows: mini-batches cut first, then equal work per rank, whole groups where they are even
enough.

The assignment is a fact of the batch, ``rank``, which survives ``select``. It is made twice a step: after the rollout,
for all stages before the update, and before the update, because by then rows may have left the batch and the slowest
rank sets the pace. Where none has left, both are the same, and a rank updates on what it wrote itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_like.ops.partition import attention_costs, imbalance, partition
from verl_like.protocol import Array
from verl_like.single_controller.remote_batch import RemoteBatch

MAX_GROUP_IMBALANCE = 1.02  # above it, single rows are dealt: they balance better, and groups fall apart over ranks


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of each rank, in the mini-batches of one learner.

    Args:
        rows: ``rows[rank]`` [n] row numbers, mini-batch after mini-batch.
        mini_batches: ``mini_batches[rank][m]`` positions among the rank's rows.
    """

    rows: list[Array]
    mini_batches: list[list[Array]]


def assign(
    batch: RemoteBatch, *, mini_batch_prompts: int, ranks: int, by: str = "tokens", skips_zeros: bool = False
) -> float:
    """Give each row the fact ``rank``, the one it had being forgotten: mini-batches are cut by prompt, and each is
    balanced over the ranks.

    The cut comes first, so which rows make an update does not depend on the number of ranks or on lengths.

    Args:
        mini_batch_prompts: prompts per cut; every learner's mini-batch holds whole cuts.
        by: "tokens", or "attention" for the sum of squares.
        skips_zeros: whether rows without advantage cost nothing, because the update does not run them.

    Returns:
        The work of the busiest rank over the mean; 1.0 is even.
    """
    tokens = batch.facts["prompt_tokens"] + batch.facts["response_tokens"]
    if skips_zeros:
        tokens = tokens * batch.facts["has_advantage"]
    costs = attention_costs(tokens) if by == "attention" else tokens
    groups = batch.facts["group_id"]
    rank_of = np.empty(len(batch), np.int64)
    for members in _cuts(groups, mini_batch_prompts):
        for rank, part in enumerate(_dealt(costs[members], groups[members], ranks)):
            rank_of[members[part]] = rank
    batch.facts["rank"] = rank_of
    return imbalance(costs, by_rank(batch, ranks))


def by_rank(batch: RemoteBatch, ranks: int) -> list[Array]:
    """Row numbers of each rank, ascending."""
    return _split(np.arange(len(batch)), batch.facts["rank"], ranks)


def plan(batch: RemoteBatch, *, mini_batch_prompts: int, ranks: int) -> Plan:
    """The rows of each rank as the fact ``rank`` has them, in mini-batches of so many prompts."""
    cuts = _cuts(batch.facts["group_id"], mini_batch_prompts)
    rank_of = batch.facts["rank"]
    of_cuts = [_split(members, rank_of[members], ranks) for members in cuts]
    parts = [list(own) for own in zip(*of_cuts, strict=True)]
    starts = [np.cumsum([0, *map(len, own)]) for own in parts]
    mini_batches = [[np.arange(a, b) for a, b in zip(s[:-1], s[1:], strict=True)] for s in starts]
    return Plan([np.concatenate(own) for own in parts], mini_batches)


def _cuts(groups: Array, prompts: int) -> list[Array]:
    """Rows of each mini-batch, ascending; ``groups`` [B] are numbered from 0 in the batch's order."""
    cut = groups // prompts
    return [np.flatnonzero(cut == number) for number in np.unique(cut)]


def _dealt(costs: Array, groups: Array, ranks: int) -> list[Array]:
    """Rows of each rank, ascending: whole groups, whose columns then stay on one node, unless they do not balance."""
    _, group_of = np.unique(groups, return_inverse=True)
    of_groups = np.bincount(group_of, weights=costs).astype(np.int64)
    parts = partition(of_groups, ranks)
    if imbalance(of_groups, parts) > MAX_GROUP_IMBALANCE:
        return partition(costs, ranks)
    rank_of = np.empty(len(of_groups), np.int64)
    for rank, part in enumerate(parts):
        rank_of[part] = rank
    return _split(np.arange(len(costs)), rank_of[group_of], ranks)


def _split(rows: Array, rank_of: Array, ranks: int) -> list[Array]:
    """The rows of each rank, in the order that they have."""
    order = np.argsort(rank_of, kind="stable")
    return np.split(rows[order], np.cumsum(np.bincount(rank_of, minlength=ranks))[:-1])
