"""A policy loss of one micro-batch as the actor's loss takes it: zero-padded before, weighed and aggregated after."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from verl_like.algorithms.policy_losses import PolicyLoss
from verl_like.algorithms.policy_losses.base import aggregated, zero_padded
from verl_like.algorithms.types import LossInputs, LossOutput
from verl_like.config.schema import PolicyLossConfig


@dataclass(kw_only=True, slots=True)
class WeighedInputs(LossInputs):
    """Return the inputs of a loss, and the rollout correction's weights for its output."""

    weights: Tensor | None = None


def loss_of(loss: PolicyLoss, inputs: LossInputs, config: PolicyLossConfig) -> LossOutput:
    weights = inputs.weights if isinstance(inputs, WeighedInputs) else None
    padded = zero_padded(inputs)
    return aggregated(loss.function(padded, config), padded, config, weights=weights)
