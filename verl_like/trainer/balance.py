"""Which rank works on which rows: mini-batches cut first, then equal work per rank, whole groups where they are even
enough.
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
    """The rows of each rank, for every stage of a step: a rank reads what it wrote.

    Args:
        rows: ``rows[rank]`` [n] row numbers, mini-batch after mini-batch.
        mini_batches: ``mini_batches[rank][m]`` positions among the rank's rows.
        imbalance: work of the busiest rank over the mean; 1.0 is even.
    """

    rows: list[Array]
    mini_batches: list[list[Array]]
    imbalance: float


def update_plan(
    batch: RemoteBatch, *, prompts_per_mini_batch: int, ranks: int, by: str = "tokens", skips_zeros: bool = False
) -> Plan:
    """Cut mini-batches by prompt in (prompt, sample) order, then balance each over the ranks.

    The cut comes first, so which rows make an update does not depend on the number of ranks or on lengths.

    Args:
        by: "tokens", or "attention" for the sum of squares.
        skips_zeros: whether rows without advantage cost nothing, because the update does not run them.
    """
    tokens = batch.facts["prompt_tokens"] + batch.facts["response_tokens"]
    if skips_zeros:
        tokens = tokens * batch.facts["has_advantage"]
    costs = attention_costs(tokens) if by == "attention" else tokens
    groups = batch.facts["group_id"]
    cut = groups // prompts_per_mini_batch
    rows: list[list[Array]] = [[] for _ in range(ranks)]
    for mini_batch in np.unique(cut):
        members = np.flatnonzero(cut == mini_batch)
        for rank, part in enumerate(_dealt(costs[members], groups[members], ranks)):
            rows[rank].append(members[part])
    starts = [np.cumsum([0, *map(len, own)]) for own in rows]
    mini_batches = [[np.arange(a, b) for a, b in zip(s[:-1], s[1:], strict=True)] for s in starts]
    joined = [np.concatenate(own) for own in rows]
    return Plan(joined, mini_batches, imbalance(costs, joined))


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
    order = np.argsort(rank_of[group_of], kind="stable")
    return np.split(order, np.cumsum(np.bincount(rank_of[group_of], minlength=ranks))[:-1])
