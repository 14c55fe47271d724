"""What policy losses share: the bounded ratio, the clipped surrogate, and the end of each
loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from verl_like.algorithms.aggregate import aggregate, token_share
from verl_like.algorithms.kl import MAX_LOG_RATIO, kl
from verl_like.algorithms.types import LossInputs, LossOutput
from verl_like.config.schema import PolicyLossConfig


def zero_padded(inputs: LossInputs) -> LossInputs:
    """The same bundle with zeros outside the mask.

    Padding may hold anything. Masking the loss would not be enough: a zero gradient times a NaN is NaN, and a sum over
    the row would carry it to the valid tokens.
    """
    mask = inputs.response_mask

    def clean(column: Tensor | None) -> Tensor | None:
        return None if column is None else torch.where(mask, column, 0.0)

    return replace(
        inputs,
        log_probs=torch.where(mask, inputs.log_probs, 0.0),
        old_log_probs=torch.where(mask, inputs.old_log_probs, 0.0),
        advantages=torch.where(mask, inputs.advantages, 0.0),
        ref_log_probs=clean(inputs.ref_log_probs),
        rollout_log_probs=clean(inputs.rollout_log_probs),
        entropy=clean(inputs.entropy),
        weights=clean(inputs.weights),
        covariance_rank=clean(inputs.covariance_rank),
    )


def bounded_log_ratio(inputs: LossInputs) -> Tensor:
    """[B, T] log_probs - old_log_probs within +-20 nats, so that exp stays finite;
    a token out there has no gradient.
    """
    return (inputs.log_probs - inputs.old_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_surrogate(ratio: Tensor, inputs: LossInputs, config: PolicyLossConfig) -> tuple[Tensor, Tensor]:
    """[B, T] max(-A r, -A clip(r, 1 - low, 1 + high)), and [B, T] bool: tokens that the clip holds, which have no
    gradient.
    """
    unclipped = -inputs.advantages * ratio
    clipped = -inputs.advantages * ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
    return torch.maximum(unclipped, clipped), clipped > unclipped


def ratio_metrics(log_ratio: Tensor, ratio: Tensor, inputs: LossInputs) -> dict[str, Tensor]:
    """Token means of ``ppo_kl`` (k3 estimate of KL(old, new), nats) and ``ratio_mean``."""
    return {
        "ppo_kl": token_share(kl(torch.zeros_like(log_ratio), log_ratio, "k3"), inputs.response_mask, inputs.totals),
        "ratio_mean": token_share(ratio, inputs.response_mask, inputs.totals),
    }


def loss_output(
    token_losses: Tensor, inputs: LossInputs, config: PolicyLossConfig, metrics: Mapping[str, Tensor]
) -> LossOutput:
    """The end of every loss: rollout-correction weights,
    then ``config.loss_aggregation`` by the mini-batch's counts.
    """
    if inputs.weights is not None:
        token_losses = token_losses * inputs.weights.detach()
    loss = aggregate(token_losses, inputs.response_mask, config.loss_aggregation, inputs.totals)
    return LossOutput(loss=loss, metrics=dict(metrics))
