"""The scorers of a run: the functions of the pool and, if configured, a reward model, a judge and environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from verl_like.config.schema import RewardConfig
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.protocol import Array, episode_numbers, last_rows
from verl_like.reward.failure_limit import check_failures, failures_of, value_of_failure
from verl_like.reward.pool import PoolScoring, RewardPool
from verl_like.reward.scores import Scores


class ModelScoring(Protocol):
    """The rows that a model scores for one step."""

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Start scoring a block, now or after the rollout; return at once."""

    def finish(self) -> None:
        """Start the remaining work: the rollout is over, and no more blocks follow."""

    def scores(self) -> Scores:
        """Return the scores of all samples begun since the last call, in the order of :meth:`begin`: one per episode,
        of its last row (``protocol.last_rows`` of the facts, or of the block), else one per row.
        """


class ScoringModel(Protocol):
    """A scorer whose score is added to that of the functions, reported as the component ``name``.

    ``option`` is the section of the configuration that names it.
    """

    name: str
    option: str
    weight: float

    def open(self) -> ModelScoring:
        """Start the scores of another step."""


class BatchScores(Protocol):
    """The scores of the rows of a step."""

    def scores(self, batch: RemoteBatch) -> Scores:
        """Return the scores of these rows; wait for pending ones."""


class StepRewards:
    """The scores of one step: the rollout adds blocks, and the scores of any of their rows can be read.

    Pending scores are not waited for when the last reference to this object is dropped; their results are freed.

    Args:
        num_samples: samples of a batch, if they may be read in parts: failures are counted as a share of all of them.
    """

    def __init__(
        self,
        functions: PoolScoring,
        models: Sequence[tuple[ScoringModel, ModelScoring]],
        config: RewardConfig,
        *,
        num_samples: int = 0,
    ) -> None:
        self._functions, self._models, self._config = functions, models, config
        self._least_samples = num_samples
        self._num_rows = 0  # rows begun
        self._num_samples = 0  # of these rows; each is scored once
        self._first_row: dict[bytes, int] = {}  # of a block, among all rows begun; a reference would keep the block
        self._sample_of: list[Array] = []  # per block: the number of each row's sample
        self._under_way: list[tuple[Array, Array]] = []  # per block: group ids, and the samples of the baseline
        self._arrived: list[Scores] = []  # of the samples before the pending ones
        self._is_reading = False
        self._later: list[tuple[Facts, BlockRef, bool]] = []  # blocks that arrived while scores were read

    def begin(self, facts: Facts, block: BlockRef, *, is_baseline: bool = False) -> None:
        """Start scoring a block; return at once. An episode is scored once, on its last row.

        A block may arrive while :meth:`scores` waits, if engines are polled in every wait. It is scored after that: it
        would not be in all of the scorers' results.

        Args:
            is_baseline: whether the rows are greedy responses, one per prompt of the other pending rows.
        """
        if self._is_reading:
            self._later.append((facts, block, is_baseline))
            return
        self._first_row[block.binary()] = self._num_rows
        self._num_rows += len(facts["group_id"])
        group_ids, numbers = facts["group_id"][last_rows(facts)], episode_numbers(facts)
        self._sample_of.append(self._num_samples + (np.arange(len(group_ids)) if numbers is None else numbers))
        self._num_samples += len(group_ids)
        self._under_way.append((group_ids, np.full(len(group_ids), is_baseline)))
        self._functions.begin(facts, block)
        for _, scoring in self._models:
            scoring.begin(facts, block)

    def scores(self, batch: RemoteBatch) -> Scores:
        """Return the scores of these rows and of their baseline; wait for pending ones. The rows of an episode share
        its score.

        A failure scores as ``reward.on_failure`` says. A row may be requested any number of times.

        Raises:
            FeedbackError: too many samples failed.
            KeyError: the block of a row was not begun here.
        """
        if self._under_way:
            self._is_reading = True
            try:
                self._arrived.append(self._read())
            finally:
                self._is_reading = False
            later, self._later = self._later, []
            for facts, block, is_baseline in later:
                self.begin(facts, block, is_baseline=is_baseline)
        [rollout] = [layer for layer in batch.layers if "response_ids" in layer.columns]
        first = np.array([self._first_row[ref.binary()] for ref in rollout.stored])
        samples = np.concatenate([*self._sample_of, np.empty(0, np.int64)])[first[rollout.block] + rollout.index]
        return Scores.concat(self._arrived).select(samples)

    def _read(self) -> Scores:
        """Return the scores of all blocks begun since the last call."""
        for _, scoring in self._models:
            scoring.finish()
        found = self._functions.scores()
        for model, scoring in self._models:
            found = found.plus(scoring.scores(), name=model.name, option=model.option, weight=model.weight)
        group_ids, is_baseline = (np.concatenate(each) for each in zip(*self._under_way, strict=True))
        self._under_way = []
        num_samples = max(int((~is_baseline).sum()), self._least_samples)
        check_failures(failures_of(found.failure[~is_baseline]), num_samples, self._config)
        found = found.with_failures_worth(value_of_failure(self._config))
        return found.with_baseline(group_ids, is_baseline) if is_baseline.any() else found


class Rewards:
    """All scorers of a run, for any number of open steps."""

    def __init__(self, functions: RewardPool, models: Sequence[ScoringModel], config: RewardConfig) -> None:
        self._functions, self._models, self._config = functions, models, config

    def open(self, *, num_samples: int = 0) -> StepRewards:
        """Start the scores of another step; those of open steps are unchanged.

        Args:
            num_samples: as in :class:`StepRewards`.
        """
        models = [(model, model.open()) for model in self._models]
        functions = self._functions.open(num_samples=num_samples)
        return StepRewards(functions, models, self._config, num_samples=num_samples)

    def dump(self, batch: RemoteBatch, rows: Array, path: Path, *, appends: bool = False) -> None:
        """Start writing these rows of the batch as text."""
        self._functions.dump(batch, rows, path, appends=appends)

    def keep(self, batch: RemoteBatch, columns: Sequence[str], folder: Path) -> None:
        """Start writing these columns of the batch unchanged."""
        self._functions.keep(batch, columns, folder)

    def settle(self) -> None:
        """Return when everything is written."""
        self._functions.settle()


def first_rows(batch: RemoteBatch, count: int) -> Array:
    """Return the row numbers of the first ``count`` samples, or of all if it is negative: of episodes the last row."""
    rows = np.arange(len(batch))[last_rows(batch.facts)]
    return rows if count < 0 else rows[:count]
