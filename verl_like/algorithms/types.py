"""Inputs and results of algorithms. ``[B, T]`` tensors are right-padded float32; masks are bool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from verl_like.protocol import DataProto


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """The policy's turns in the episodes of a batch: episode after episode, each in the sequence of its turns.

    Args:
        num_turns: [B] int64, turns of each episode; they sum to U.
        num_tokens: [U] int64, tokens that the policy sampled in the turn; they are adjacent among the episode's sampled
            tokens.
        rewards: [U] float64, what the environment gave for the turn.
        state_keys: [U] int64, equal for equal states before the turn; negative if the environment names no states.
    """

    num_turns: Tensor
    num_tokens: Tensor
    rewards: Tensor
    state_keys: Tensor


@dataclass(kw_only=True, slots=True)
class AdvantageInputs:
    """Inputs of an estimator; an optional column is present only if the estimator's ``needs`` names it.

    Of episodes with environments there is one row each, with the tokens that the policy sampled and no others.

    Args:
        rewards: [B, T] token rewards, zero outside ``response_mask``; the score is at the last response token. With
            ``turns``, a turn's reward is at its last token, and the last response token has the rest of the score.
        response_mask: [B, T] bool, true where the policy sampled the token.
        group_ids: [B] int64, equal ids share a prompt, any order.
        values: [B, T] the critic's value before each token.
        ref_log_probs, old_log_probs, rollout_log_probs: [B, T] nats.
        sum_pi_squared: [B, T] sum over the vocabulary of the squared probabilities at the token's position (old
            policy).
        baseline_rewards: [B] score of the greedy response to the row's prompt.
        role_baselines: [B] float64, baseline of the row's role.
        reward_components: name -> [B], the parts that the reward function returned in addition to its score.
        turns: the turns of the rows.
    """

    rewards: Tensor
    response_mask: Tensor
    group_ids: Tensor
    values: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    sum_pi_squared: Tensor | None = None
    baseline_rewards: Tensor | None = None
    role_baselines: Tensor | None = None
    reward_components: Mapping[str, Tensor] | None = None
    turns: Turns | None = None


@dataclass(kw_only=True, slots=True)
class Advantages:
    """Result of an estimator.

    Args:
        advantages, returns: [B, T], zero outside the mask.
        metrics: name -> a number for each token [B, T] or each response [B], or one number; the mean over the batch's
            sampled tokens, or over its responses, is reported as ``advantages/NAME``.
    """

    advantages: Tensor
    returns: Tensor
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTotals:
    """Counts over the whole mini-batch, all ranks and micro-batches, by which losses are divided."""

    num_tokens: float  # true entries of response_mask
    num_sequences: float  # rows with at least one true entry; the rows of an episode are one sequence
    num_prompts: float = 0.0  # groups with at least one true entry; 0 if the rows have no ``group_tokens``
    max_response_tokens: int  # data.max_response_length, the constant of seq-mean-token-sum-norm


@dataclass(kw_only=True, slots=True)
class LossInputs:
    """Inputs of a policy loss: [B, T] each, one micro-batch, zeros outside the mask.

    ``sequence_tokens`` [B] int64 is present if rows are parts of episodes: the true entries of ``response_mask`` in all
    rows of the row's episode, of which the micro-batch may hold only some. ``group_tokens`` [B] int64 are those in all
    responses to the row's prompt.
    """

    log_probs: Tensor  # with gradient
    old_log_probs: Tensor
    advantages: Tensor
    response_mask: Tensor
    totals: BatchTotals
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    entropy: Tensor | None = None  # with gradient
    # Share of the mini-batch's tokens whose covariance of log-prob and advantage is higher.
    covariance_rank: Tensor | None = None
    sequence_tokens: Tensor | None = None
    group_tokens: Tensor | None = None


@dataclass(kw_only=True, slots=True)
class TokenLosses:
    """Result of a policy loss: [B, T] each. Values outside the mask are ignored.

    Args:
        losses: each token's loss, with gradient; not yet weighted, masked or aggregated.
        metrics: name -> a number or bool per token, or one number; the mean over the mini-batch's tokens is reported as
            ``actor/NAME``.
    """

    losses: Tensor
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class LossOutput:
    """A micro-batch's share of the loss and of each metric; shares are summed over micro-batches and ranks."""

    loss: Tensor  # scalar with gradient
    metrics: dict[str, Tensor] = field(default_factory=dict)  # scalars without gradient


class MicroBatchLoss(Protocol):
    """The loss of one micro-batch, as a training engine calls it."""

    @property
    def needs_entropy(self) -> bool:
        """Whether ``outputs`` must hold ``entropy``."""

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        """Return [B]: rows whose loss can have a gradient. The others count in the totals, but are not run."""

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        """Return this micro-batch's share of the loss and the metrics.

        Args:
            outputs: [B, T] with gradient: ``log_probs`` (and ``entropy`` if needed), or ``values``.
            columns: [B, T] the rows' token columns that align with the response, including ``response_mask``; and
                ``group_tokens`` [B], and ``episode_tokens`` [B] if rows are parts of episodes.
            totals: counts of the whole mini-batch.
        """
