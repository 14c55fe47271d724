"""What the driver calls for scores that a model gives: a reward model beside the actor, or scorers with workers of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_like.protocol import Array
from verl_like.single_controller.remote_batch import BlockRef, RemoteBatch
from verl_like.single_controller.wait import wait
from verl_like.single_controller.worker_group import Method, WorkerGroup
from verl_like.workers.reward_models.classifier import RewardModelRole
from verl_like.workers.reward_models.judge import JudgeRole
from verl_like.workers.reward_models.scores import ModelScores


class ColocatedRewardModel:
    """The reward model in the hybrid workers."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group

    def scores(self, batch: RemoteBatch, partition: Sequence[Array]) -> ModelScores:
        """Of every row, in the batch's order; a stage of its own, ``partition[rank]`` being the rows of each rank."""
        reports = self._group.map_rows(RewardModelRole.scores, batch, partition, interruptible=True)
        return ModelScores.concat(reports).select(np.argsort(np.concatenate(partition)))


class BlockScorers:
    """Workers that score blocks while the rollout still runs.

    Blocks are dealt to the engines in turn, and engines that only work together get theirs in rounds.

    Args:
        method: takes a block and returns a :class:`ModelScores`, or None on ranks that say nothing.
        stage: name of the wait for the scores.
        ranks_per_engine: neighbouring ranks that are given the same blocks.
        is_collective: every call is one of all ranks, those without a block being given None.
    """

    def __init__(
        self, group: WorkerGroup, method: Method, *, stage: str, ranks_per_engine: int, is_collective: bool
    ) -> None:
        self._group, self._method, self._stage = group, method, stage
        self._ranks_per_engine = ranks_per_engine
        self._round_size = group.world_size // ranks_per_engine
        self._is_collective = is_collective
        self._next = 0  # engine
        self._waiting: list[BlockRef] = []  # for their round to be full
        self._answers: dict[BlockRef, str] = {}

    def submit(self, block: BlockRef) -> None:
        """Have a block scored; returns at once."""
        self._waiting.append(block)
        if not self._is_collective:
            self._start([None] * self._next + self._waiting)
            self._next = (self._next + 1) % self._round_size
        elif len(self._waiting) == self._round_size:
            self._start(self._waiting)

    def collect(self, *, timeout_s: float) -> ModelScores:
        """Of all rows submitted since the last call, in the order of submission.

        Raises:
            WorkerError: a worker failed.
            StageTimeout: the scores did not come in time.
            Interrupted: Ctrl-C.
        """
        if self._waiting:
            self._start(self._waiting)
        answers, self._answers = self._answers, {}
        arrived = wait(answers, stage=self._stage, timeout_s=timeout_s, interruptible=True)
        return ModelScores.concat([scores for scores in arrived if scores is not None])

    def forget(self) -> None:
        """Drop what was submitted (an abandoned step); workers finish what they have begun."""
        self._waiting, self._answers = [], {}

    def _start(self, blocks: Sequence[BlockRef | None]) -> None:
        """Give engine i ``blocks[i]``; the engines behind the last have none."""
        of_engine = [*blocks, *[None] * (self._round_size - len(blocks))]
        of_rank = [block for block in of_engine for _ in range(self._ranks_per_engine)]
        self._answers |= self._group.start(
            self._method, [(block,) if block is not None or self._is_collective else None for block in of_rank]
        )
        self._waiting = []


def own_reward_model(group: WorkerGroup) -> BlockScorers:
    """A reward model that is sharded over all workers of the group; each scores another block of a round."""
    return BlockScorers(
        group, RewardModelRole.scores_of_block, stage="reward_model", ranks_per_engine=1, is_collective=True
    )


def judges(group: WorkerGroup, *, tensor_parallel_size: int) -> BlockScorers:
    """Judges whose engines take ``tensor_parallel_size`` workers each."""
    return BlockScorers(
        group, JudgeRole.judge, stage="judge", ranks_per_engine=tensor_parallel_size, is_collective=False
    )
