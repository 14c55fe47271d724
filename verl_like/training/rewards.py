"""Everything that scores: the functions of the pool and, where there are any, a reward model and a judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from verl_like.config.schema import RewardConfig
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.protocol import Array
from verl_like.reward.failure_limit import check_failures, failures_of, value_of_failure
from verl_like.reward.pool import PoolScoring, RewardPool
from verl_like.reward.scores import Scores


class ModelScoring(Protocol):
    """The rows that a model scores for one step."""

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Have a block scored, now or when the rollout is over; returns at once."""

    def finish(self) -> None:
        """Start what is left: the rollout is over, and no more blocks come."""

    def scores(self) -> Scores:
        """Return the scores of all rows begun since the last call, in the order of :meth:`begin`."""


class ScoringModel(Protocol):
    """A model whose score is added to that of the functions, reported as the component ``name``."""

    name: str
    weight: float

    def open(self) -> ModelScoring:
        """Begin the scores of another step."""


class StepRewards:
    """The scores of one step: blocks go in as the rollout makes them; the scores of any of their rows come out.

    What is under way when the last reference to this object goes is not waited for, and its results are freed.
    """

    def __init__(
        self, functions: PoolScoring, models: Sequence[tuple[ScoringModel, ModelScoring]], config: RewardConfig
    ) -> None:
        self._functions, self._models, self._config = functions, models, config
        self._num_rows = 0  # begun
        self._first_row: dict[bytes, int] = {}  # of a block, among all rows begun; a reference would keep the block
        self._under_way: list[tuple[Array, Array]] = []  # of each block: group ids, and which rows are of the baseline
        self._arrived: list[Scores] = []  # of the rows before those under way

    def begin(self, facts: Facts, block: BlockRef, *, is_baseline: bool = False) -> None:
        """Have a block scored; returns at once.

        Args:
            is_baseline: whether the rows are greedy responses, one to each prompt of what else is under way.
        """
        self._first_row[block.binary()] = self._num_rows
        self._num_rows += len(facts["group_id"])
        self._under_way.append((facts["group_id"], np.full(len(facts["group_id"]), is_baseline)))
        self._functions.begin(facts, block)
        for _, scoring in self._models:
            scoring.begin(facts, block)

    def scores(self, batch: RemoteBatch) -> Scores:
        """Return the scores of these rows, and of their baseline; wait for what is under way.

        A failure is worth what ``reward.on_failure`` says. A row may be asked for any number of times.

        Raises:
            FeedbackError: too many samples failed.
            KeyError: a row whose block was not begun here.
        """
        if self._under_way:
            for _, scoring in self._models:
                scoring.finish()
            found = self._functions.scores()
            for model, scoring in self._models:
                found = found.plus(scoring.scores(), name=model.name, weight=model.weight)
            group_ids, is_baseline = (np.concatenate(each) for each in zip(*self._under_way, strict=True))
            check_failures(failures_of(found.failure[~is_baseline]), int((~is_baseline).sum()), self._config)
            found = found.with_failures_worth(value_of_failure(self._config))
            self._arrived.append(found.with_baseline(group_ids, is_baseline) if is_baseline.any() else found)
            self._under_way = []
        [rollout] = [layer for layer in batch.layers if "response_ids" in layer.columns]
        first = np.array([self._first_row[ref.binary()] for ref in rollout.refs])
        return Scores.concat(self._arrived).select(first[rollout.block] + rollout.index)


class Rewards:
    """Everything that scores, for any number of steps at once."""

    def __init__(self, functions: RewardPool, models: Sequence[ScoringModel], config: RewardConfig) -> None:
        self._functions, self._models, self._config = functions, models, config

    def open(self) -> StepRewards:
        """Begin the scores of another step; those of open steps stay as they are."""
        return StepRewards(self._functions.open(), [(model, model.open()) for model in self._models], self._config)

    def dump(self, batch: RemoteBatch, rows: Array, path: Path, *, appends: bool = False) -> None:
        """Begin to write these rows of the batch as text."""
        self._functions.dump(batch, rows, path, appends=appends)

    def keep(self, batch: RemoteBatch, columns: Sequence[str], folder: Path) -> None:
        """Begin to write these columns of the batch as they are."""
        self._functions.keep(batch, columns, folder)

    def settle(self) -> None:
        """Return when everything is written."""
        self._functions.settle()


def first_rows(batch: RemoteBatch, count: int) -> Array:
    """Return the row numbers of the first ``count``; of all where it is negative."""
    return np.arange(len(batch) if count < 0 else min(count, len(batch)))
