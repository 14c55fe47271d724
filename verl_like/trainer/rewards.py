"""Everything that scores: the functions of the pool and, where there are any, a reward model and a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verl_like.config.schema import RewardConfig
from verl_like.protocol import Array
from verl_like.reward.failures import Failure, failures_of, judge_failures, value_of_failure
from verl_like.reward.pool import RewardPool
from verl_like.single_controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.workers.reward_models.groups import BlockScorers, ColocatedRewardModel
from verl_like.workers.reward_models.scores import ModelScores


@dataclass(frozen=True, slots=True)
class ModelScorer:
    """A model that scores blocks while the rollout runs, in workers of its own."""

    name: str  # of its component
    weight: float
    scorers: BlockScorers


class Rewards:
    """Blocks go in as they appear; facts of all their rows come out.

    Args:
        models: with workers of their own.
        colocated: the reward model in the hybrid workers, which is asked when their rollout is over.
        ranks: hybrid workers.
        timeout_s: deadline for what is left of the models' work when the scores are collected.
    """

    def __init__(
        self,
        pool: RewardPool,
        models: Sequence[ModelScorer],
        colocated: ColocatedRewardModel | None,
        *,
        ranks: int,
        timeout_s: float,
    ) -> None:
        self._pool, self._models, self._colocated, self._ranks, self._timeout_s = (
            pool,
            models,
            colocated,
            ranks,
            timeout_s,
        )

    def submit(self, block: BlockRef, num_rows: int) -> None:
        """Have a block scored; returns at once."""
        self._pool.submit(block, num_rows)
        for model in self._models:
            model.scorers.submit(block)

    def ask_hybrid_workers(self, batch: RemoteBatch, partition: Sequence[Array] | None = None) -> None:
        """Have the reward model in the hybrid workers score this batch, where there is one; :func:`add_scores` adds
        what it says.

        Args:
            partition: rows of each rank; by default equally many.
        """
        if self._colocated is not None:
            found = self._colocated.scores(batch, partition or np.array_split(np.arange(len(batch)), self._ranks))
            batch.add_facts(
                {"model_score": found.scores, "model_message": found.messages, "model_details": found.details}
            )

    def collect(self) -> Facts:
        """Facts of all rows submitted since the last call, in the order of submission."""
        facts = self._pool.collect()
        for model in self._models:
            facts |= with_model(
                facts, model.scorers.collect(timeout_s=self._timeout_s), name=model.name, weight=model.weight
            )
        return facts

    def forget(self) -> None:
        """Drop what was submitted (an abandoned step)."""
        self._pool.forget()
        for model in self._models:
            model.scorers.forget()

    def dump(self, batch: RemoteBatch, rows: Array, path: Path, *, appends: bool = False) -> None:
        """Begin to write these rows of the batch as text."""
        self._pool.dump(batch, rows, path, appends=appends)


def with_model(facts: Mapping[str, Array], model: ModelScores, *, name: str, weight: float) -> Facts:
    """The facts ``score``, ``reward_status``, ``failure`` and ``details`` once a model's scores are added under
    ``name``.
    """
    details, failure = facts["details"].copy(), facts["failure"].copy()
    for i in range(len(details)):
        details[i] = {
            **details[i],
            **({} if np.isnan(model.scores[i]) else {name: float(model.scores[i])}),
            **model.details[i],
        }
        if np.isnan(model.scores[i]) and failure[i] is None:
            failure[i] = Failure("error", f"reward.{name}: {model.messages[i]}", "", "")
    status = np.array([each.status if each is not None else "ok" for each in failure])
    return {
        "score": facts["score"] + np.float32(weight) * model.scores,
        "reward_status": status,
        "failure": failure,
        "details": details,
    }


def add_scores(batch: RemoteBatch, rewards: Rewards, config: RewardConfig) -> None:
    """Wait for the scores of this batch, and of its baseline where there is one, and put them beside its rows.

    Raises:
        JudgementError: too many samples failed.
    """
    scores = rewards.collect()
    found = {name: fact[batch.facts["arrival"]] for name, fact in scores.items()}
    if "model_score" in batch.facts:
        model = ModelScores(batch.facts["model_score"], batch.facts["model_message"], batch.facts["model_details"])
        found |= with_model(found, model, name="model", weight=config.model.weight)
    judge_failures(failures_of(found["failure"]), len(batch), config)
    worth = np.float32(value_of_failure(config))
    batch.add_facts({**found, "score": np.where(np.isnan(found["score"]), worth, found["score"])})
    if "baseline_arrival" in batch.facts:
        baseline = scores["score"][batch.facts["baseline_arrival"]]
        batch.add_facts({"baseline_score": np.where(np.isnan(baseline), worth, baseline)})


def first_rows(batch: RemoteBatch, count: int) -> Array:
    """Row numbers of the first ``count``; of all where it is negative."""
    return np.arange(len(batch) if count < 0 else min(count, len(batch)))
