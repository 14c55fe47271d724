"""Tokens that the policy loss leaves out, of those that the policy sampled.

A token that is left out keeps its share of every denominator, as one that the rollout correction rejects. KL and
entropy terms keep it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.policy_losses.base import row_mean
from verl_like.algorithms.types import LossInputs
from verl_like.config.schema import PolicyLossConfig


def left_out(inputs: LossInputs, config: PolicyLossConfig, is_high_entropy: Tensor | None) -> dict[str, Tensor]:
    """Return what each mask that is on leaves out, [B, T] bool by the name of its metric.

    Args:
        is_high_entropy: [B, T] bool, if only these tokens are learned from (2506.01939; ``top_entropy_quantile``).
    """
    found = {}
    if is_high_entropy is not None:
        found["entropy_masked_frac"] = ~is_high_entropy
    if config.off_policy_mask_threshold > 0:
        found["off_policy_masked_frac"] = off_policy(inputs, config.off_policy_mask_threshold)
    return found


def off_policy(inputs: LossInputs, threshold: float) -> Tensor:
    """Return the tokens of negative advantage in rows that the policy no longer samples (off-policy sequence masking,
    DeepSeek-V3.2, 2512.02556, equation 9).

    These are the rows whose mean over tokens of log pi_rollout - log pi is above ``threshold`` nats. The log-probs of
    the engine count the updates since the rollout as well as its difference from the trainer. Of an episode with
    several rows, each row has its own mean.
    """
    assert inputs.rollout_log_probs is not None, (
        "actor.off_policy_mask_threshold > 0, but the batch has no rollout_log_probs"
    )
    gap = row_mean(inputs.rollout_log_probs - inputs.log_probs.detach(), inputs.response_mask)
    return (inputs.advantages < 0) & (gap > threshold)


def without(weights: Tensor | None, dropped: dict[str, Tensor]) -> Tensor | None:
    """Return the weights of tokens, 1 if there are none, with zeros for those that are left out."""
    for mask in dropped.values():
        weights = torch.where(mask, 0.0, 1.0 if weights is None else weights)
    return weights
