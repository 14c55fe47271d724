"""The prompts in flight of a schedule that generates while the policy learns.

A *draw* is a batch of prompts that was taken from the data loader at once. Its groups finish one by one, and an update
takes as many groups as a draw has, of one draw or of several. At most ``max_staleness + 1`` draws are in flight when a
step begins. New ones are drawn only between two updates, so every group starts with the weights of the step in which
it was drawn, or with newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from verl_like.algorithms.roles import step_columns
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.protocol import Array
from verl_like.reward.scores import Scores
from verl_like.telemetry.ledger import stage
from verl_like.training.generation import greedy_sampling, joined_blocks, put_prompts, train_sampling
from verl_like.training.parts import StepParts
from verl_like.training.rewards import StepRewards
from verl_like.training.step_state import StepState
from verl_like.workers.engine_pool import Admission, EnginePool


class PromptGroup(NamedTuple):
    """A prompt in flight with its samples.

    Args:
        draw: number of its draw.
        position: of the prompt in the draw.
    """

    draw: int
    position: int


@dataclass(eq=False, kw_only=True, slots=True)
class Draw:
    """A batch of prompts.

    Args:
        number: from 1, the number of the step from which its samples have their seeds.
        step: the step before which it was admitted; its samples are at most this many updates behind.
        loader_state: position of the data loader before the draw.
        scores: of the groups that have arrived.
        left: positions of the prompts that no update has taken.
        missing: how many parts of each group have not arrived: its samples, and its greedy baseline if there is one.
        blocks: the rows of groups that have arrived, without baselines.
    """

    number: int
    step: int
    loader_state: dict[str, Any]
    scores: StepRewards
    left: set[int]
    missing: dict[int, int]
    blocks: list[tuple[Facts, BlockRef]] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)

    def let_go(self) -> None:
        """Drop the references to blocks of which no group is left to be taken, and at the end those to the prompts."""
        self.blocks = [each for each in self.blocks if not self.left.isdisjoint(each[0]["group_id"].tolist())]
        if not self.left:  # an admission refers to its draw; otherwise the garbage collector would free both, later
            self.admissions.clear()


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a choice of groups is made from.

    Args:
        finished: groups that have arrived and that no update has taken, in the order of their arrival.
        unfinished: groups that have not arrived.
        deadline: the last step that may learn from each group.
    """

    finished: list[PromptGroup]
    unfinished: list[PromptGroup]
    deadline: dict[PromptGroup, int]


Choice = Callable[[InFlight, int, int], list[PromptGroup] | None]


def oldest_draw(found: InFlight, num_groups: int, step: int) -> list[PromptGroup] | None:
    """Choose the groups of the oldest draw once all have arrived."""
    oldest = min(group.draw for group in (*found.finished, *found.unfinished))
    if any(group.draw == oldest for group in found.unfinished):
        return None
    return [group for group in found.finished if group.draw == oldest]


def first_finished(found: InFlight, num_groups: int, step: int) -> list[PromptGroup] | None:
    """Choose the groups that arrived first, as far as every other one can still be learnt from in time.

    After this step, the next ``k`` steps must suffice for all groups that are due within them, for every ``k``.

    Args:
        num_groups: of an update.
        step: number of the step that learns from them.
    """
    chosen: list[PromptGroup] = []
    left = list(found.finished)
    due = sorted(set(found.deadline.values()))
    num_due = 0
    for deadline in due:
        num_due += sum(each == deadline for each in found.deadline.values())
        needed = num_due - num_groups * (deadline - step) - len(chosen)
        if needed <= 0:
            continue
        urgent = [group for group in left if found.deadline[group] <= deadline]
        if len(urgent) < needed:
            return None
        chosen += urgent[:needed]
        taken = set(chosen)
        left = [group for group in left if group not in taken]
    if len(chosen) + len(left) < num_groups:
        return None
    assert len(chosen) <= num_groups, f"{len(chosen)} groups are due in step {step}, which learns from {num_groups}"
    return chosen + left[: num_groups - len(chosen)]


class Window:
    """Draws prompts ahead, and hands over the groups that an update learns from.

    Args:
        max_staleness: largest age of a group when it is learnt from, in updates.
        depth: draws in flight at most.
        choose: chooses the groups of an update.
    """

    def __init__(
        self, parts: StepParts, engines: EnginePool, *, max_staleness: int, depth: int, choose: Choice
    ) -> None:
        self._parts, self._engines, self._choose = parts, engines, choose
        self._max_staleness, self._num_draws = max_staleness, min(depth, max_staleness + 1)
        self._size = parts.config.data.train_batch_size
        self._draws: dict[int, Draw] = {}
        self._finished: list[PromptGroup] = []  # in the order of their arrival
        self._redrawn: dict[int, list[int]] = {}  # after a resume: positions of a draw that are still to be learnt from
        self._arrivals: list[PromptGroup] = []  # the groups taken last
        self._next = 1

    @property
    def num_left(self) -> int:
        """Number of prompts that were drawn and that no update has taken."""
        return sum(len(draw.left) for draw in self._draws.values())

    def fill(self, *, step: int, version: int) -> None:
        """Draw and admit as many prompts as may be in flight before this step.

        Args:
            version: version of the engines' weights.
        """
        while self.num_left + self._size <= self._num_draws * self._size or self._next in self._redrawn:
            self._draw(step, version)

    def _draw(self, step: int, version: int) -> None:
        parts, config, number = self._parts, self._parts.config, self._next
        with stage("prompts"):
            before = parts.loader.state_dict()
            prompts = parts.loader.next_batch()
        self._next += 1
        left = self._redrawn.pop(number, list(range(len(prompts))))
        if not left:
            return
        num_parts = 2 if parts.needs.baseline else 1
        draw = Draw(
            number=number,
            step=step,
            loader_state=before,
            scores=parts.rewards.open(num_samples=config.data.train_batch_size * config.rollout.n),
            left=set(left),
            missing=dict.fromkeys(left, num_parts),
        )
        self._draws[number] = draw
        with stage("rollout"):
            asked = put_prompts(prompts).select(np.array(left, np.int64))
            admit = partial(self._engines.admit, asked, step=number, version=version, first_sample=0)
            draw.admissions.append(
                admit(n=config.rollout.n, sampling=train_sampling(config), arrived=partial(self._arrived, draw, False))
            )
            if parts.needs.baseline:
                draw.admissions.append(
                    admit(n=1, sampling=greedy_sampling(config), arrived=partial(self._arrived, draw, True))
                )

    def _arrived(self, draw: Draw, is_baseline: bool, facts: Facts, block: BlockRef) -> None:
        draw.scores.begin(facts, block, is_baseline=is_baseline)
        if not is_baseline:
            draw.blocks.append((facts, block))
        for position in np.unique(facts["group_id"]).tolist():
            draw.missing[position] -= 1
            if not draw.missing[position]:
                del draw.missing[position]
                self._finished.append(PromptGroup(draw.number, position))

    def take(self, state: StepState) -> RemoteBatch:
        """Wait for the groups of this step, and return their rows by (draw, position, sample)."""
        with stage("rollout"):
            chosen = self._chosen(state.step)
        state.scores = DrawnScores({number: self._draws[number].scores for number in {each.draw for each in chosen}})
        batch = self._batch(chosen)
        for group in chosen:
            self._draws[group.draw].left.discard(group.position)
        taken = set(chosen)
        self._arrivals = [group for group in self._finished if group in taken]
        self._finished = [group for group in self._finished if group not in taken]
        for number, draw in list(self._draws.items()):
            draw.let_go()
            if not draw.left:
                del self._draws[number]
        state.prompts.draw(len(chosen))
        state.num_drawn = self._parts.loader.num_drawn - self.num_left
        state.metrics.add_rollout(batch)
        state.metrics.add_staleness(batch, version=state.version)
        self._parts.store.check(batch, step_columns(self._parts.config))
        return batch

    def taken(self, batch: RemoteBatch) -> list[list[int]]:
        """Return (draw, position, oldest version, newest version) of each group of a batch, in order of arrival."""
        facts = batch.facts
        starts = np.flatnonzero(np.diff(facts["group_id"], prepend=-1))  # rows are sorted by group
        oldest = np.minimum.reduceat(facts["weight_version_min"], starts).tolist()
        newest = np.maximum.reduceat(facts["weight_version_max"], starts).tolist()
        numbers = {group: number for number, group in enumerate(sorted(self._arrivals))}
        return [[*group, oldest[numbers[group]], newest[numbers[group]]] for group in self._arrivals]

    def _chosen(self, step: int) -> list[PromptGroup]:
        chosen: list[PromptGroup] | None = None

        def is_ready() -> bool:
            nonlocal chosen
            chosen = self._choose(self._in_flight(), self._size, step)
            return chosen is not None

        self._engines.wait_until(is_ready, [each for draw in self._draws.values() for each in draw.admissions])
        assert chosen is not None, "the wait ended without a choice"
        return sorted(chosen)

    def _in_flight(self) -> InFlight:
        unfinished = [PromptGroup(draw.number, position) for draw in self._draws.values() for position in draw.missing]
        deadline = {
            group: self._draws[group.draw].step + self._max_staleness for group in (*self._finished, *unfinished)
        }
        return InFlight(self._finished, unfinished, deadline)

    def _batch(self, chosen: Sequence[PromptGroup]) -> RemoteBatch:
        """Return the rows of these groups, which are numbered in their order."""
        batches, num_groups = [], 0
        for number in sorted({group.draw for group in chosen}):
            draw = self._draws[number]
            positions = [group.position for group in chosen if group.draw == number]
            columns = self._engines.columns_of(draw.admissions[0].prompts, draw.blocks[0][0])
            rows = joined_blocks(draw.blocks, draw.admissions[0].prompts, columns)
            rows = rows.select(np.isin(rows.facts["group_id"], positions))
            numbers = np.searchsorted(positions, rows.facts["group_id"]) + num_groups
            batches.append(rows.with_facts({"group_id": numbers, "draw": np.full(len(rows), number)}))
            num_groups += len(positions)
        return RemoteBatch.concat(batches)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs so that the prompts in flight are drawn again: JSON."""
        first = min(self._draws, default=self._next)
        left = {str(number): sorted(self._left_of(number)) for number in range(first, self._next)}
        return {"next": first, "left": left}

    def _left_of(self, number: int) -> set[int]:
        return self._draws[number].left if number in self._draws else set()

    def load(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`; the data loader is at the position of :meth:`loader_state`."""
        self._next = state["next"]
        self._redrawn = {int(number): left for number, left in state["left"].items()}

    def loader_state(self) -> dict[str, Any]:
        """Return the position of the data loader from which the prompts in flight are drawn again."""
        if not self._draws:
            return self._parts.loader.state_dict()
        return self._draws[min(self._draws)].loader_state


class DrawnScores:
    """The scores of rows of several draws, like :class:`StepRewards`."""

    def __init__(self, of_draw: dict[int, StepRewards]) -> None:
        self._of_draw = of_draw

    def scores(self, batch: RemoteBatch) -> Scores:
        """Return the scores of these rows; wait for pending ones."""
        parts, rows = [], []
        for number, own in self._rows_by_draw(batch):
            parts.append(self._of_draw[number].scores(batch.select(own)))
            rows.append(own)
        return Scores.concat(parts).select(np.argsort(np.concatenate(rows)))

    def _rows_by_draw(self, batch: RemoteBatch) -> Iterator[tuple[int, Array]]:
        for number in np.unique(batch.facts["draw"]).tolist():
            yield number, np.flatnonzero(batch.facts["draw"] == number)
