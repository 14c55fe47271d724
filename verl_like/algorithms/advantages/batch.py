"""The steps of an estimator that need the whole batch, and the column that the trainer must have made."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.advantages.estimator import Estimator
from verl_like.algorithms.advantages.groups import Scored
from verl_like.algorithms.advantages.whitening import moments_of_rows, whiten_stats, whitened
from verl_like.config.schema import AlgorithmConfig


def batch_advantages(
    estimator: Estimator, advantages: Tensor, mask: Tensor, *, lengths: Tensor, group_ids: Tensor
) -> Tensor:
    """Finish the advantages of a whole batch: the estimator's ``final_step``, then whitening, where it asks for them.

    Args:
        advantages: [K] float32, what the estimator gave for all rows, one row after the other without padding.
        mask: [K] bool.
        lengths: [B] int64 tokens of each row; they add up to K.
        group_ids: [B] int64.

    Returns:
        [K] float32, zero where masked.
    """
    if estimator.final_step is not None:
        rows = torch.arange(len(lengths)).repeat_interleave(lengths)
        is_valid = torch.zeros(len(lengths), dtype=torch.bool).index_fill(0, rows[mask], True)
        row_advantages = torch.zeros(len(lengths), dtype=torch.float64)
        row_advantages[rows[mask]] = advantages[mask].double()  # constant over a response, so any of its tokens will do
        finished = estimator.final_step(row_advantages, is_valid, group_ids)
        advantages = torch.where(mask, finished.float()[rows], 0.0)
    return whitened(advantages, mask, whiten_stats(advantages, mask)) if estimator.whiten else advantages


def row_advantages(estimator: Estimator, responses: Scored, config: AlgorithmConfig) -> Tensor:
    """[B] float32: what an estimator that takes scores gives each token of a response in the end, the same as by way of
    tokens up to rounding; 0 where a row is not valid.
    """
    assert estimator.takes == "scores", f"{estimator} reads tokens"
    found: Tensor = estimator.fn(responses, config)
    if estimator.final_step is not None:
        found = estimator.final_step(found, responses.is_valid, responses.group)
    if estimator.whiten:
        found = whitened(found, responses.is_valid, moments_of_rows(found, responses.num_chosen))
    return torch.where(responses.is_valid, found, 0.0).float()


def needed(column: Tensor | None, name: str) -> Tensor:
    assert column is not None, (
        f"the estimator needs {name}, but the batch has none; the trainer builds it where `needs` names it"
    )
    return column
