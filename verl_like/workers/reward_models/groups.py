"""What the driver calls for scores that a model gives: beside the actor, or in workers of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.controller.wait import wait
from verl_like.controller.worker_group import Method, WorkerGroup
from verl_like.ops.partition import partition
from verl_like.reward.scores import Scores
from verl_like.telemetry.ledger import stage
from verl_like.workers.reward_models.classifier import RewardModelRole
from verl_like.workers.reward_models.inputs import COLUMNS
from verl_like.workers.reward_models.judge import JudgeRole


class ColocatedModel:
    """The reward model in the hybrid workers: it scores when their rollout is over, in a stage of its own.

    Args:
        name: of its component.
        weight: of its score in the sum.
    """

    def __init__(self, group: WorkerGroup, *, name: str, weight: float) -> None:
        self.name, self.weight = name, weight
        self._group = group

    def open(self) -> ColocatedScoring:
        """Begin the scores of another step."""
        return ColocatedScoring(self._group)


class ColocatedScoring:
    """The blocks that a colocated model scores for one step."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self._waiting: list[tuple[Facts, BlockRef]] = []
        self._scores = Scores.concat([])

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Remember a block; the workers are busy with the rollout."""
        self._waiting.append((facts, block))

    def finish(self) -> None:
        """Score all blocks, assigned anew: equally many tokens to each rank."""
        batch = RemoteBatch.from_blocks(self._waiting, frozenset(COLUMNS), producer="rollout")
        parts = partition(batch.facts["prompt_tokens"] + batch.facts["response_tokens"], self._group.world_size)
        with stage("reward_model"):
            reports = self._group.map_rows(RewardModelRole.scores, batch, parts, interruptible=True)
        self._waiting = []
        self._scores = Scores.concat(reports).select(np.argsort(np.concatenate(parts)))

    def scores(self) -> Scores:
        """Return the scores of the rows that :meth:`finish` found, in the order of :meth:`begin`."""
        return self._scores


class OwnModel:
    """A reward model or a judge with workers of its own, which score blocks while the rollout still runs.

    Blocks are dealt to the engines in turn, and engines that only work together get theirs in rounds.

    Args:
        method: takes a block and returns :class:`Scores`, or None on ranks that say nothing.
        name: of its component, and of the wait for the scores.
        weight: of its score in the sum.
        ranks_per_engine: neighbouring ranks that are given the same blocks.
        is_collective: every call is one of all ranks, those without a block being given None.
        timeout_s: deadline for what is left of the work when the scores are asked for.
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
        self.name, self.weight = name, weight
        self._group, self._method, self._timeout_s = group, method, timeout_s
        self._ranks_per_engine = ranks_per_engine
        self._round_size = group.world_size // ranks_per_engine
        self._is_collective = is_collective
        self._next = 0  # engine

    def open(self) -> OwnScoring:
        """Begin the scores of another step. Workers finish what they have of steps that were dropped."""
        return OwnScoring(self)

    def started(self, waiting: Sequence[BlockRef], *, is_last: bool) -> dict[BlockRef, str] | None:
        """Hand these blocks to the next engines; return the answers under way, or None where their round is not full.

        Args:
            is_last: whether no more blocks come, so that the round starts as it is.
        """
        if self._is_collective:
            return self._start(waiting) if is_last or len(waiting) == self._round_size else None
        answers = self._start([None] * self._next + list(waiting))
        self._next = (self._next + 1) % self._round_size
        return answers

    def _start(self, blocks: Sequence[BlockRef | None]) -> dict[BlockRef, str]:
        """Give engine i ``blocks[i]``; the engines after the last have none."""
        of_engine = [*blocks, *[None] * (self._round_size - len(blocks))]
        of_rank = [block for block in of_engine for _ in range(self._ranks_per_engine)]
        return self._group.start(
            self._method, [(block,) if block is not None or self._is_collective else None for block in of_rank]
        )

    def arrived(self, answers: dict[BlockRef, str]) -> Scores:
        """Wait for these answers.

        Raises:
            WorkerError: a worker failed.
            StageTimeout: the scores did not come in time.
            Interrupted: Ctrl-C.
        """
        found = wait(answers, stage=self.name, timeout_s=self._timeout_s, interruptible=True)
        return Scores.concat([scores for scores in found if scores is not None])


class OwnScoring:
    """The blocks that a model with workers of its own scores for one step."""

    def __init__(self, model: OwnModel) -> None:
        self._model = model
        self._waiting: list[BlockRef] = []  # for their round to be full
        self._answers: dict[BlockRef, str] = {}

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Have a block scored; returns at once."""
        self._waiting.append(block)
        self._start(is_last=False)

    def finish(self) -> None:
        """Start the last round, although it is not full."""
        if self._waiting:
            self._start(is_last=True)

    def _start(self, *, is_last: bool) -> None:
        if (answers := self._model.started(self._waiting, is_last=is_last)) is not None:
            self._answers |= answers
            self._waiting = []

    def scores(self) -> Scores:
        """Return the scores of all rows begun since the last call, in the order of :meth:`begin`.

        Raises as :meth:`OwnModel.arrived` does.
        """
        answers, self._answers = self._answers, {}
        return self._model.arrived(answers)


def own_reward_model(group: WorkerGroup, *, weight: float, timeout_s: float) -> OwnModel:
    """A reward model that is sharded over all workers of the group; each scores another block of a round."""
    return OwnModel(
        group,
        RewardModelRole.scores_of_block,
        name="model",
        weight=weight,
        ranks_per_engine=1,
        is_collective=True,
        timeout_s=timeout_s,
    )


def judge(group: WorkerGroup, *, weight: float, tensor_parallel_size: int, timeout_s: float) -> OwnModel:
    """A judge whose engines take ``tensor_parallel_size`` workers each."""
    return OwnModel(
        group,
        JudgeRole.judge,
        name="judge",
        weight=weight,
        ranks_per_engine=tensor_parallel_size,
        is_collective=False,
        timeout_s=timeout_s,
    )
