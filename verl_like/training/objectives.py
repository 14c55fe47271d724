"""The objectives of training on given rows: answers, preferences between two responses, and scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from verl_like.algorithms.f_divergences import score_of
from verl_like.algorithms.pair_losses import PairInputs, bradley_terry, pair_losses
from verl_like.algorithms.preference_loss import DpoLoss
from verl_like.config.schema import DpoConfig, RmConfig
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.protocol import Array, DataProto
from verl_like.runs.saving import Savable
from verl_like.training.reference import Reference
from verl_like.training.row_trainer import VAL_LOSS, Reports
from verl_like.training.step_metrics import Metrics
from verl_like.workers.groups import ActorGroup, ScorerGroup


class ActorObjective:
    """Base of the objectives whose learner is the policy."""

    def __init__(self, actor: ActorGroup) -> None:
        self._actor = actor

    @property
    def learners(self) -> Mapping[str, Savable]:
        return {"actor": self._actor}

    def load(self, path: Path, version: int) -> None:
        self._actor.load(str(path / "actor"), version)

    def export(self, path: Path) -> None:
        self._actor.export(str(path))


class ScoreObjective:
    """A higher score for the preferred response of each pair (``verl-like rm``)."""

    job, val_metric = "rm", "val/accuracy"

    def __init__(self, scorer: ScorerGroup, config: RmConfig) -> None:
        self._scorer, self._config = scorer, config

    @property
    def learners(self) -> Mapping[str, Savable]:
        return {"scorer": self._scorer}

    def load(self, path: Path, version: int) -> None:
        self._scorer.load(str(path / "scorer"))

    def export(self, path: Path) -> None:
        self._scorer.export(str(path))

    def prepare(self, rows: DataProto, batch: RemoteBatch, mini_batches: Iterable[Array]) -> None:
        """Add the fact ``margin``."""
        del mini_batches
        batch.add_facts({"margin": np.asarray(rows["margin"])})

    def update(self, batch: RemoteBatch, parts: Sequence[Array]) -> Reports:
        return self._scorer.update(batch, parts)

    def validate(self, batch: RemoteBatch, parts: Sequence[Array]) -> Metrics:
        scores = torch.from_numpy(self._scorer.scores(batch, parts))
        chosen, rejected, margin = scores[::2], scores[1::2], torch.from_numpy(batch.facts["margin"][::2])
        losses = bradley_terry(chosen, rejected, margin, center=self._config.center_rewards_coefficient)
        return {
            "val/loss": float(losses.mean()),
            "val/accuracy": float((chosen > rejected).double().mean()),
            "val/score_margin": float((chosen - rejected).mean()),
        }


class AnswerObjective(ActorObjective):
    """The mean negative log-prob of the answers' tokens (``verl-like sft``)."""

    job, val_metric = "sft", VAL_LOSS

    def prepare(self, rows: DataProto, batch: RemoteBatch, mini_batches: Iterable[Array]) -> None:
        """Do nothing."""

    def update(self, batch: RemoteBatch, parts: Sequence[Array]) -> Reports:
        return self._actor.supervise(batch, parts)

    def validate(self, batch: RemoteBatch, parts: Sequence[Array]) -> Metrics:
        mean = self._actor.response_log_probs(batch, parts).sum() / batch.facts["learnt_tokens"].sum()
        return {VAL_LOSS: -float(mean)}


class PreferenceObjective(ActorObjective):
    """The losses of pairs of responses, ``dpo.losses`` (``verl-like dpo``)."""

    job, val_metric = "dpo", "val/accuracy"

    def __init__(self, actor: ActorGroup, config: DpoConfig, reference: Reference) -> None:
        super().__init__(actor)
        self._config, self._reference = config, reference

    def prepare(self, rows: DataProto, batch: RemoteBatch, mini_batches: Iterable[Array]) -> None:
        """Add the fact ``ref_log_prob``."""
        del mini_batches
        texts = zip(rows.ragged("prompt_ids"), rows.ragged("response_ids"), strict=True)
        batch.add_facts({"ref_log_prob": self._reference.log_probs(texts, batch)})

    def update(self, batch: RemoteBatch, parts: Sequence[Array]) -> Reports:
        chosen_tokens = float(batch.facts["learnt_tokens"][batch.facts["is_chosen"]].sum())
        return self._actor.prefer(batch, parts, DpoLoss(self._config, chosen_tokens=chosen_tokens))

    def validate(self, batch: RemoteBatch, parts: Sequence[Array]) -> Metrics:
        log_probs = self._actor.response_log_probs(batch, parts)
        tokens = batch.facts["learnt_tokens"]
        chosen = slice(0, None, 2)  # the first row of each pair
        rejected = slice(1, None, 2)
        pairs = PairInputs(
            chosen=torch.from_numpy(log_probs[chosen]),
            rejected=torch.from_numpy(log_probs[rejected]),
            ref_chosen=torch.from_numpy(batch.facts["ref_log_prob"][chosen]),
            ref_rejected=torch.from_numpy(batch.facts["ref_log_prob"][rejected]),
            chosen_tokens=torch.from_numpy(tokens[chosen]),
            rejected_tokens=torch.from_numpy(tokens[rejected]),
            score=score_of(self._config),
            sft_scale=float(np.size(tokens) / 2 / tokens[chosen].sum()),
        )
        margin = self._config.beta * (pairs.chosen_ratio - pairs.rejected_ratio)
        return {
            "val/loss": float(pair_losses(pairs, self._config).mean()),
            "val/accuracy": float((margin > 0).double().mean()),
            "val/reward_margin": float(margin.mean()),
        }
