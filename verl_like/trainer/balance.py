"""Which rank works on which rows: equal tokens per rank, mini-batches cut first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_like.ops.partition import partition
from verl_like.protocol import Array
from verl_like.single_controller.remote_batch import RemoteBatch


def row_tokens(batch: RemoteBatch) -> Array:
    """[B] prompt plus response tokens of each row."""
    tokens: Array = batch.facts["prompt_tokens"] + batch.facts["response_tokens"]
    return tokens


def balanced(batch: RemoteBatch, ranks: int) -> list[Array]:
    """Rows of each rank, with about equal tokens."""
    return partition(row_tokens(batch), ranks)


def imbalance(batch: RemoteBatch, parts: list[Array]) -> float:
    """Tokens of the fullest rank over the mean; 1.0 is perfect."""
    tokens = [float(row_tokens(batch)[rows].sum()) for rows in parts]
    return max(tokens) / (sum(tokens) / len(tokens))


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """``rows[rank]`` is what a rank fetches; ``mini_batches[rank][m]`` are positions among them."""

    rows: list[Array]
    mini_batches: list[list[Array]]


def update_plan(batch: RemoteBatch, *, prompts_per_mini_batch: int, ranks: int) -> UpdatePlan:
    """Cut mini-batches by prompt in (prompt, sample) order, then balance each over the ranks.

    The cut comes first, so which rows make an update does not depend on the number of ranks or on lengths.
    """
    cut = batch.facts["group_id"] // prompts_per_mini_batch
    tokens = row_tokens(batch)
    rows: list[list[Array]] = [[] for _ in range(ranks)]
    for mini_batch in np.unique(cut):
        members = np.flatnonzero(cut == mini_batch)
        for rank, part in enumerate(partition(tokens[members], ranks)):
            rows[rank].append(members[part])
    starts = [np.cumsum([0, *map(len, own)]) for own in rows]
    mini_batches = [[np.arange(a, b) for a, b in zip(s[:-1], s[1:], strict=True)] for s in starts]
    return UpdatePlan([np.concatenate(own) for own in rows], mini_batches)
