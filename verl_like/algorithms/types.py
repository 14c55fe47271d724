"""The bundles that algorithms take and give. ``[B, T]`` tensors are right-padded float32; masks are bool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor


@dataclass(kw_only=True, slots=True)
class AdvantageInputs:
    """What an estimator may read; a column is there only if the estimator's ``needs`` names it.

    Args:
        rewards: [B, T] token rewards, zero outside ``response_mask``; the score sits on the last response token.
        response_mask: [B, T] bool, true where the policy chose the token.
        group_ids: [B] int64, equal ids share a prompt, any order.
        values: [B, T] the critic's value before each token.
        ref_log_probs, old_log_probs, rollout_log_probs: [B, T] nats.
    """

    rewards: Tensor
    response_mask: Tensor
    group_ids: Tensor
    values: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None


@dataclass(kw_only=True, slots=True)
class Advantages:
    """``advantages`` and ``returns`` [B, T], zero outside the mask."""

    advantages: Tensor
    returns: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTotals:
    """Counts over the whole mini-batch, all ranks and micro-batches, by which losses are divided."""

    num_tokens: float  # true entries of response_mask
    num_sequences: float  # rows with at least one true entry
    max_response_tokens: int  # data.max_response_length, the constant of seq-mean-token-sum-norm


@dataclass(kw_only=True, slots=True)
class LossInputs:
    """What a policy loss may read: [B, T] each, one micro-batch."""

    log_probs: Tensor  # with gradient
    old_log_probs: Tensor
    advantages: Tensor
    response_mask: Tensor
    totals: BatchTotals
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    entropy: Tensor | None = None  # with gradient


@dataclass(kw_only=True, slots=True)
class LossOutput:
    """A micro-batch's share of the loss and of each metric; shares add up over micro-batches and ranks."""

    loss: Tensor  # scalar with gradient
    metrics: dict[str, Tensor] = field(default_factory=dict)  # scalars without gradient


class MicroBatchLoss(Protocol):
    """The loss of one micro-batch, as a training engine calls it."""

    @property
    def needs_entropy(self) -> bool:
        """Whether ``outputs`` must hold ``entropy``."""

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        """
        Args:
            outputs: [B, T] with gradient: ``log_probs`` (and ``entropy`` where needed), or ``values``.
            columns: [B, T] the rows' token columns that align with the response, among them ``response_mask``.
            totals: counts of the whole mini-batch.
        """
