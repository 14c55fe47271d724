"""The choice of the groups of an update: it meets every deadline, and never waits for a group that is not due."""

from __future__ import annotations

import gc
import random
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from verl_like.controller.remote_batch import Facts
from verl_like.training.window import Draw, InFlight, PromptGroup, first_finished, oldest_draw


def in_flight(
    finished: list[tuple[int, int]], unfinished: list[tuple[int, int]], deadlines: dict[int, int]
) -> InFlight:
    groups = [PromptGroup(*each) for each in finished], [PromptGroup(*each) for each in unfinished]
    return InFlight(*groups, {group: deadlines[group.draw] for group in (*groups[0], *groups[1])})


def test_the_oldest_draw_is_taken_whole_and_only_when_all_of_it_has_arrived() -> None:
    deadlines = {1: 2, 2: 3}
    assert oldest_draw(in_flight([(2, 0), (2, 1), (1, 1)], [(1, 0)], deadlines), 2, 1) is None
    assert oldest_draw(in_flight([(2, 0), (1, 1), (1, 0)], [(2, 1)], deadlines), 2, 1) == [(1, 1), (1, 0)]


def test_groups_are_taken_in_the_order_of_their_arrival() -> None:
    found = in_flight([(2, 1), (1, 0), (2, 0)], [(1, 1)], {1: 5, 2: 5})
    assert first_finished(found, 2, 4) == [(2, 1), (1, 0)]


def test_a_group_that_is_due_is_waited_for_although_others_have_arrived() -> None:
    assert first_finished(in_flight([(2, 0), (2, 1)], [(1, 0)], {1: 3, 2: 4}), 2, 3) is None
    assert first_finished(in_flight([(2, 0), (2, 1), (1, 0)], [], {1: 3, 2: 4}), 2, 3) == [(1, 0), (2, 0)]


def test_groups_are_taken_early_if_all_could_not_be_learnt_from_at_their_deadline() -> None:
    found = in_flight([(2, 0), (2, 1), (1, 2), (1, 1)], [(1, 0)], {1: 4, 2: 5})
    chosen = first_finished(found, 2, 3)
    assert chosen == [(1, 2), (2, 0)], "three groups are due in step 4, which learns from two"


def test_what_was_taken_is_freed_at_once_and_not_by_the_garbage_collector() -> None:
    class Stored:
        """Stands for a block in the store, which a reference to it keeps."""

    def arrived(draw: Draw, facts: Facts, block: Any) -> None:
        draw.blocks.append((facts, block))

    draw = Draw(number=1, step=1, loader_state={}, scores=None, left={0, 1, 2}, missing={})  # type: ignore[arg-type]
    prompts, *blocks = Stored(), Stored(), Stored()
    freed = [weakref.ref(each) for each in (prompts, *blocks)]
    draw.admissions.append(SimpleNamespace(prompts=prompts, arrived=partial(arrived, draw)))  # type: ignore[arg-type]
    for groups, block in zip(([0, 1], [2, 2]), blocks, strict=True):
        draw.admissions[0].arrived({"group_id": np.array(groups)}, block)  # type: ignore[arg-type]
    del prompts, block
    blocks.clear()
    gc.disable()
    try:
        for left, expected in (({1, 2}, [True] * 3), ({1}, [True, True, False]), (set(), [False] * 3)):
            draw.left = left
            draw.let_go()
            assert [each() is not None for each in freed] == expected
    finally:
        gc.enable()


class Admission(RuleBasedStateMachine):
    """Groups arrive in any order; whatever it is, every group is learnt from by its deadline, and none is lost."""

    @initialize(size=st.integers(1, 4), staleness=st.integers(0, 4), depth=st.integers(1, 5))
    def begin(self, size: int, staleness: int, depth: int) -> None:
        self.size, self.staleness, self.num_draws = size, staleness, min(depth, staleness + 1)
        self.step, self.next = 1, 1
        self.finished: list[PromptGroup] = []
        self.unfinished: list[PromptGroup] = []
        self.deadline: dict[PromptGroup, int] = {}
        self.num_learnt = 0
        self.fill()

    def fill(self) -> None:
        """Draw as many as may be in flight, as Window.fill does."""
        while len(self.deadline) + self.size <= self.num_draws * self.size:
            new = [PromptGroup(self.next, position) for position in range(self.size)]
            self.unfinished += new
            self.deadline.update(dict.fromkeys(new, self.step + self.staleness))
            self.next += 1

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self.finished.append(self.unfinished.pop(data.draw(st.integers(0, len(self.unfinished) - 1))))

    @rule()
    def learn(self) -> None:
        chosen = first_finished(InFlight(self.finished, self.unfinished, self.deadline), self.size, self.step)
        if chosen is None:
            return
        assert len(chosen) == self.size == len(set(chosen)) and set(chosen) <= set(self.finished)
        for group in chosen:
            self.finished.remove(group)
            del self.deadline[group]
        self.num_learnt += self.size
        self.step += 1
        self.fill()

    @invariant()
    def nothing_is_late_and_all_are_accounted_for(self) -> None:
        assert all(deadline >= self.step for deadline in self.deadline.values())
        assert (self.next - 1) * self.size == self.num_learnt + len(self.finished) + len(self.unfinished)

    @invariant()
    def a_step_can_begin_once_all_have_arrived(self) -> None:
        everything = InFlight([*self.finished, *self.unfinished], [], self.deadline)
        assert first_finished(everything, self.size, self.step) is not None


TestAdmission = Admission.TestCase
TestAdmission.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 3))
def test_a_wait_is_only_for_groups_without_which_a_deadline_would_be_missed(
    seed: int, size: int, staleness: int
) -> None:
    """With a batch of arrived groups at hand, a step waits only if skipping the missing ones breaks a deadline."""
    rng = random.Random(seed)
    machine = Admission()
    machine.begin(size, staleness, staleness + 1)
    for _ in range(40):
        if machine.unfinished:
            machine.finished.append(machine.unfinished.pop(rng.randrange(len(machine.unfinished))))
        found = InFlight(machine.finished, machine.unfinished, machine.deadline)
        if first_finished(found, size, machine.step) is None and len(machine.finished) >= size:
            assert any(not can_follow(found, group, size, machine.step) for group in machine.unfinished)
        machine.learn()


def can_follow(found: InFlight, missing: PromptGroup, size: int, step: int) -> bool:
    """Return whether the best batch without this group leaves all others enough steps."""
    by_deadline = sorted(found.finished, key=found.deadline.__getitem__)
    left = [*by_deadline[size:], *found.unfinished]
    due = [found.deadline[group] for group in left]
    return all(sum(each <= step + later for each in due) <= later * size for later in range(10))
