"""The critic's regression loss, and the explained variance of its values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.algorithms.advantages.whitening import Moments
from verl_like.algorithms.aggregate import aggregate, token_share
from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.config.schema import CriticConfig
from verl_like.protocol import DataProto


class CriticLoss:
    """Half the squared error of the values, mean over the mini-batch's tokens.

    With ``critic.value_clip`` = c > 0 the loss is the larger of the error of V and that of V clipped to old V +- c (the
    form of the PPO authors' code), so a value that has moved further than c in the right direction has no gradient. 0
    turns it off.

    Reads the columns ``values`` (from before the update), ``returns`` and ``response_mask``.

    Metrics are named ``critic/...``: ``value_loss``, ``value_mean``, and ``value_clip_frac`` (clipped tokens) if
    clipping is on.
    """

    needs_entropy = False

    def __init__(self, config: CriticConfig) -> None:
        self.config = config

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        values, old_values, returns = outputs["values"], columns["values"], columns["returns"]
        mask, clip = columns["response_mask"], self.config.value_clip
        # Padding may hold anything; a NaN there must reach neither the loss nor the gradient.
        errors = torch.where(mask, values - returns, 0.0).square()
        metrics = {"critic/value_mean": token_share(values, mask, totals)}
        if clip > 0:
            # Not old + clamp(v - old), which equals v only up to rounding: a value within the bounds would count as
            # clipped.
            held = values.clamp(old_values - clip, old_values + clip)
            held_errors = torch.where(mask, held - returns, 0.0).square()
            metrics["critic/value_clip_frac"] = token_share(held_errors > errors, mask, totals)
            errors = torch.maximum(errors, held_errors)
        loss = aggregate(0.5 * errors, mask, "token-mean", totals)
        return LossOutput(loss=loss, metrics={"critic/value_loss": loss.detach(), **metrics})


def explained_variance(*, errors: Moments, returns: Moments) -> float:
    """Return 1 - Var(returns - values) / Var(returns) over a batch: 1 is perfect, 0 no better than a constant, below 0
    worse.

    Both moments come from ``whiten_stats``, summed over chunks. Returns that do not vary give 0.
    """
    return 1 - errors.variance / returns.variance if returns.variance > 0 else 0.0
