"""The driver's interface to scores from a model: colocated with the actor, or on separate workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.controller.wait import wait
from verl_like.controller.worker_group import Method, WorkerGroup
from verl_like.ops.partition import partition
from verl_like.protocol import EPISODE_ROW, last_rows
from verl_like.reward.scores import Scores
from verl_like.telemetry.ledger import stage
from verl_like.workers.reward_models.classifier import RewardModelRole
from verl_like.workers.reward_models.inputs import COLUMNS
from verl_like.workers.reward_models.judge import JudgeRole


class ColocatedModel:
    """The reward model in the hybrid workers: it scores after their rollout, in a separate stage.

    Args:
        name: name of its reward component.
        weight: weight of its score in the sum.
    """

    def __init__(self, group: WorkerGroup, *, name: str, weight: float) -> None:
        self.name, self.option, self.weight = name, f"reward.{name}", weight
        self._group = group

    def open(self) -> ColocatedScoring:
        """Start the scores of another step."""
        return ColocatedScoring(self._group)


class ColocatedScoring:
    """The blocks that a colocated model scores for one step."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self._waiting: list[tuple[Facts, BlockRef]] = []
        self._scores = Scores.concat([])

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Record a block for later, because the workers are busy with the rollout."""
        self._waiting.append((facts, block))

    def finish(self) -> None:
        """Score all blocks, reassigned so that each rank has equally many tokens."""
        batch = RemoteBatch.from_blocks(self._waiting, frozenset(COLUMNS), producer="rollout")
        if EPISODE_ROW in batch.facts:
            batch = batch.select(last_rows(batch.facts))
        parts = partition(batch.facts["prompt_tokens"] + batch.facts["response_tokens"], self._group.world_size)
        with stage("reward_model"):
            reports = self._group.map_rows(RewardModelRole.scores, batch, parts, interruptible=True)
        self._waiting = []
        self._scores = Scores.concat(reports).select(np.argsort(np.concatenate(parts)))

    def scores(self) -> Scores:
        """Return the scores computed by :meth:`finish`, in the order of :meth:`begin`."""
        return self._scores


class SeparateModel:
    """A reward model or a judge on separate workers, which score blocks while the rollout still runs.

    Blocks are assigned to the engines round-robin. Engines that work only together get theirs in rounds.

    Args:
        method: takes a block and returns :class:`Scores`, or None on ranks without a result.
        name: name of its reward component, and of the stage that waits for the scores.
        weight: weight of its score in the sum.
        ranks_per_engine: number of neighbouring ranks that get the same blocks.
        is_collective: whether every call involves all ranks; those without a block get None.
        timeout_s: timeout for the remaining work when the scores are read.
    """

    def __init__(
        self,
        group: WorkerGroup,
        method: Method,
        *,
        name: str,
        weight: float,
        ranks_per_engine: int,
        is_collective: bool,
        timeout_s: float,
    ) -> None:
        self.name, self.option, self.weight = name, f"reward.{name}", weight
        self._group, self._method, self._timeout_s = group, method, timeout_s
        self._ranks_per_engine = ranks_per_engine
        self._round_size = group.world_size // ranks_per_engine
        self._is_collective = is_collective
        self._next = 0  # index of an engine

    def open(self) -> SeparateScoring:
        """Start the scores of another step. Workers finish outstanding work of steps that were dropped."""
        return SeparateScoring(self)

    def started(self, waiting: Sequence[BlockRef], *, is_last: bool) -> dict[BlockRef, str] | None:
        """Send these blocks to the next engines; return the pending results, or None if their round is not full.

        Args:
            is_last: whether no more blocks follow, so that the round starts although it is not full.
        """
        if self._is_collective:
            return self._start(waiting) if is_last or len(waiting) == self._round_size else None
        answers = self._start([None] * self._next + list(waiting))
        self._next = (self._next + 1) % self._round_size
        return answers

    def _start(self, blocks: Sequence[BlockRef | None]) -> dict[BlockRef, str]:
        """Send ``blocks[i]`` to engine i; engines after the last get none."""
        of_engine = [*blocks, *[None] * (self._round_size - len(blocks))]
        of_rank = [block for block in of_engine for _ in range(self._ranks_per_engine)]
        return self._group.start(
            self._method, [(block,) if block is not None or self._is_collective else None for block in of_rank]
        )

    def arrived(self, answers: dict[BlockRef, str]) -> Scores:
        """Wait for these results and return their scores.

        Raises:
            WorkerError: a worker failed.
            StageTimeout: the scores did not arrive in time.
            Interrupted: Ctrl-C.
        """
        found = wait(answers, stage=self.name, timeout_s=self._timeout_s, interruptible=True)
        return Scores.concat([scores for scores in found if scores is not None])


class SeparateScoring:
    """The blocks that a model on separate workers scores for one step."""

    def __init__(self, model: SeparateModel) -> None:
        self._model = model
        self._waiting: list[BlockRef] = []  # until their round is full
        self._answers: dict[BlockRef, str] = {}

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Request the scores of a block; returns at once."""
        self._waiting.append(block)
        self._start(is_last=False)

    def finish(self) -> None:
        """Start the last round, even if it is not full."""
        if self._waiting:
            self._start(is_last=True)

    def _start(self, *, is_last: bool) -> None:
        if (answers := self._model.started(self._waiting, is_last=is_last)) is not None:
            self._answers |= answers
            self._waiting = []

    def scores(self) -> Scores:
        """Return the scores of all rows begun since the last call, in the order of :meth:`begin`.

        Raises the same errors as :meth:`SeparateModel.arrived`.
        """
        answers, self._answers = self._answers, {}
        return self._model.arrived(answers)


def separate_reward_model(group: WorkerGroup, *, weight: float, timeout_s: float) -> SeparateModel:
    """Return a reward model that is sharded over all workers of the group; in a round each scores a different block."""
    return SeparateModel(
        group,
        RewardModelRole.scores_of_block,
        name="model",
        weight=weight,
        ranks_per_engine=1,
        is_collective=True,
        timeout_s=timeout_s,
    )


def judge(group: WorkerGroup, *, weight: float, tensor_parallel_size: int, timeout_s: float) -> SeparateModel:
    """Return a judge whose engines use ``tensor_parallel_size`` workers each."""
    return SeparateModel(
        group,
        JudgeRole.judge,
        name="judge",
        weight=weight,
        ranks_per_engine=tensor_parallel_size,
        is_collective=False,
        timeout_s=timeout_s,
    )
