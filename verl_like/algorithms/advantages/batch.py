"""Steps of an estimator that need the whole batch, and the check that a needed column exists."""

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
    """Finish the advantages of a whole batch: the estimator's ``final_step``, then whitening, if it declares them.

    Args:
        advantages: [K] float32, the estimator's result for all rows, concatenated without padding.
        mask: [K] bool.
        lengths: [B] int64 tokens of each row; they sum to K.
        group_ids: [B] int64.

    Returns:
        [K] float32, zero where masked.
    """
    if estimator.final_step is not None:
        rows = torch.arange(len(lengths)).repeat_interleave(lengths)
        is_valid = torch.zeros(len(lengths), dtype=torch.bool).index_fill(0, rows[mask], True)
        row_advantages = torch.zeros(len(lengths), dtype=torch.float64)
        row_advantages[rows[mask]] = advantages[mask].double()  # constant over a response, so any of its tokens works
        finished = estimator.final_step(row_advantages, is_valid, group_ids)
        advantages = torch.where(mask, finished.float()[rows], 0.0)
    return whitened(advantages, mask, whiten_stats(advantages, mask)) if estimator.whiten else advantages


def row_advantages(estimator: Estimator, responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Return [B] float32: the final advantage of each token of a response, from an estimator that takes scores.

    It equals the result computed from tokens up to rounding; 0 if a row is not valid.
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
        f"the estimator needs {name}, but the batch has none; the trainer provides it if `needs` names it"
    )
    return column
