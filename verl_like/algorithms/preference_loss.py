"""Losses of a mini-batch: of pairs or of single responses for a policy, and of pairs for a reward model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.algorithms.f_divergences import score_of
from verl_like.algorithms.pair_losses import PairInputs, bradley_terry, pair_losses
from verl_like.algorithms.types import BatchTotals, LossOutput, MicroBatchLoss
from verl_like.algorithms.unpaired_losses import UnpairedInputs, means_by_label, unpaired_losses
from verl_like.config.schema import DpoConfig, RmConfig
from verl_like.protocol import PAIR, DataProto


class PreferenceLoss(MicroBatchLoss, Protocol):
    """A loss of given responses, which reads ``columns`` and ``ref_log_prob`` in addition to the sequence."""

    @property
    def columns(self) -> tuple[str, ...]: ...


class DpoLoss:
    """Mean of the weighted losses ``dpo.losses`` over the pairs of the mini-batch.

    Reads the columns ``response_mask``, ``pair``, ``is_chosen`` and ``ref_log_prob``; both rows of a pair are in the
    same micro-batch.

    Metrics are means over pairs: ``dpo/loss``, ``dpo/accuracy`` (share of pairs whose chosen response has the higher
    reward), ``dpo/reward_chosen`` and ``dpo/reward_rejected`` (``beta`` times the log-ratio, nats), and
    ``dpo/log_prob_chosen`` and ``dpo/log_prob_rejected`` (of whole responses, nats).

    Args:
        chosen_tokens: tokens of all chosen responses of the mini-batch.
    """

    needs_entropy = False
    columns = (PAIR, "is_chosen")

    def __init__(self, config: DpoConfig, *, chosen_tokens: float) -> None:
        self._config, self._chosen_tokens = config, chosen_tokens

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        mask, num_pairs = columns["response_mask"], totals.num_sequences / 2
        log_prob = torch.where(mask, outputs["log_probs"], 0.0).sum(-1)
        chosen, rejected = pair_rows(columns)
        tokens, reference = mask.sum(-1), columns["ref_log_prob"]
        pairs = PairInputs(
            chosen=log_prob[chosen],
            rejected=log_prob[rejected],
            ref_chosen=reference[chosen],
            ref_rejected=reference[rejected],
            chosen_tokens=tokens[chosen],
            rejected_tokens=tokens[rejected],
            score=score_of(self._config),
            sft_scale=num_pairs / self._chosen_tokens,
        )
        loss = pair_losses(pairs, self._config).sum() / num_pairs
        beta = self._config.beta
        sums = {
            "accuracy": pairs.chosen_ratio > pairs.rejected_ratio,
            "reward_chosen": beta * pairs.chosen_ratio,
            "reward_rejected": beta * pairs.rejected_ratio,
            "log_prob_chosen": pairs.chosen,
            "log_prob_rejected": pairs.rejected,
        }
        metrics = {f"dpo/{name}": value.detach().sum() / num_pairs for name, value in sums.items()}
        return LossOutput(loss=loss, metrics={"dpo/loss": loss.detach(), **metrics})


class UnpairedLoss:
    """Mean of the weighted losses ``dpo.losses`` over the responses of the mini-batch, each with a label.

    Reads the columns ``response_mask``, ``is_chosen`` and ``ref_log_prob``.

    Metrics are the mean ``dpo/loss``; and means over desirable and over undesirable responses of the reward (``beta``
    times the log-ratio, nats), ``dpo/reward_chosen`` and ``dpo/reward_rejected``, and of the log-prob,
    ``dpo/log_prob_chosen`` and ``dpo/log_prob_rejected``. A label that the mini-batch lacks has no metrics.

    Args:
        kl: estimate of the policy's KL from the reference, of the whole mini-batch, nats; 0 if no loss reads it.
        num_chosen: desirable responses of the whole mini-batch.
    """

    needs_entropy = False
    columns = ("is_chosen",)

    def __init__(self, config: DpoConfig, *, kl: float, num_chosen: int) -> None:
        self._config, self._kl, self._num_chosen = config, kl, num_chosen

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        mask, is_chosen = columns["response_mask"], columns["is_chosen"]
        log_prob = torch.where(mask, outputs["log_probs"], 0.0).sum(-1)
        rows = UnpairedInputs(log_prob=log_prob, reference=columns["ref_log_prob"], is_chosen=is_chosen, kl=self._kl)
        loss = unpaired_losses(rows, self._config).sum() / totals.num_sequences
        values = {"reward": self._config.beta * rows.ratio, "log_prob": log_prob}
        num_rejected = round(totals.num_sequences) - self._num_chosen
        means = means_by_label(values, is_chosen, num_chosen=self._num_chosen, num_rejected=num_rejected)
        metrics = {f"dpo/{name}": value for name, value in means.items()}
        return LossOutput(loss=loss, metrics={"dpo/loss": loss.detach(), **metrics})


class RewardModelLoss:
    """Mean Bradley-Terry loss over the pairs of the mini-batch.

    Reads the columns ``response_mask``, which is true at one token of each row, before which the value is the row's
    score; ``pair``, ``is_chosen`` and ``margin``.

    Metrics are means over pairs: ``rm/loss``, ``rm/accuracy`` (share of pairs whose chosen response has the higher
    score), ``rm/score_chosen`` and ``rm/score_rejected``.
    """

    needs_entropy = False

    def __init__(self, config: RmConfig) -> None:
        self._config = config

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        scores, num_pairs = outputs["values"][columns["response_mask"]], totals.num_sequences / 2
        chosen, rejected = (scores[rows] for rows in pair_rows(columns))
        margin = columns["margin"][pair_rows(columns)[0]]
        losses = bradley_terry(chosen, rejected, margin, center=self._config.center_rewards_coefficient)
        loss = losses.sum() / num_pairs
        sums = {"accuracy": chosen > rejected, "score_chosen": chosen, "score_rejected": rejected}
        metrics = {f"rm/{name}": value.detach().sum() / num_pairs for name, value in sums.items()}
        return LossOutput(loss=loss, metrics={"rm/loss": loss.detach(), **metrics})


def pair_rows(columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the indices of the chosen and of the rejected row of each pair, [P] each."""
    order = torch.argsort(2 * columns["pair"] + ~columns["is_chosen"])
    return order[::2], order[1::2]
