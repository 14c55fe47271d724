"""The critic's regression loss, and how well its values explain the returns."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.advantages.whitening import Moments
from verl_like.algorithms.aggregate import aggregate, token_share
from verl_like.algorithms.types import BatchTotals, LossOutput


def value_loss(
    values: Tensor, *, old_values: Tensor, returns: Tensor, mask: Tensor, value_clip: float, totals: BatchTotals
) -> LossOutput:
    """Half the squared error, mean over the mini-batch's tokens.

    With ``value_clip`` = c > 0 the larger of the error of V and that of V held within old V +- c (the form of the
    PPO authors' code), so a value that has moved further than c the right way no longer pulls.

    Args:
        values, old_values, returns: [B, T]; values with gradient.
        value_clip: 0 turns clipping off.

    Returns:
        Metrics: ``value_loss``, ``value_mean``, and ``value_clip_frac`` (tokens the clip holds) where clipping is on.
    """
    # Padding may hold anything; a NaN there must reach neither the loss nor the gradient.
    errors = torch.where(mask, values - returns, 0.0).square()
    metrics = {"value_mean": token_share(values, mask, totals)}
    if value_clip > 0:
        held = old_values + (values - old_values).clamp(-value_clip, value_clip)
        held_errors = torch.where(mask, held - returns, 0.0).square()
        metrics["value_clip_frac"] = token_share(held_errors > errors, mask, totals)
        errors = torch.maximum(errors, held_errors)
    loss = aggregate(0.5 * errors, mask, "token-mean", totals)
    return LossOutput(loss=loss, metrics={"value_loss": loss.detach(), **metrics})


def explained_variance(*, errors: Moments, returns: Moments) -> float:
    """1 - Var(returns - values) / Var(returns) over a batch: 1 is perfect, 0 no better than a constant, below 0 worse.

    Both moments come from ``whiten_stats``, added up over chunks. Returns that do not vary give 0.
    """
    return 1 - errors.variance / returns.variance if returns.variance > 0 else 0.0
