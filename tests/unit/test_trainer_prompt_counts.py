"""Every prompt that is drawn is recorded exactly once, whatever becomes of it and of the steps around it."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_like.training.progress import Progress
from verl_like.training.prompt_counts import PromptCounts

# A step: how many of each draw fail, are filtered, and are trained.
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=8)


@given(STEPS)
def test_dropped_steps_leave_no_trace_and_the_rest_adds_up(steps: list[tuple[int, int, int, bool]]) -> None:
    progress, drawn = Progress(), 0
    for failed, filtered, trained, is_dropped in steps:
        step = copy(progress.prompts)
        for count in (failed, filtered + trained):
            step.draw(count)
        step.record(failed, "failed")
        step.keep_in_flight(trained, "filtered")
        if is_dropped:  # killed or interrupted: what is on disk is read again
            progress = Progress.read(json.loads(json.dumps(asdict(progress))))
            continue
        step.keep_in_flight(0, "trained")
        drawn += failed + filtered + trained
        step.check(drawn=drawn)
        progress.prompts = step
    finished = [step for step in steps if not step[3]]
    sums = [sum(column) for column in zip(*finished, strict=True)][:3] or [0, 0, 0]
    found = progress.prompts
    assert [found.failed, found.filtered, found.trained, found.in_flight] == [*sums, 0]


def test_a_prompt_is_booked_once() -> None:
    counts = PromptCounts()
    counts.draw(2)
    counts.record(2, "failed")
    with pytest.raises(AssertionError, match="1 of 0 prompts in flight cannot be trained"):
        counts.record(1, "trained")
    with pytest.raises(AssertionError, match="cannot be filtered"):
        counts.keep_in_flight(1, "filtered")  # more than there are


@pytest.mark.parametrize(
    ("counts", "drawn", "what"),
    [
        (PromptCounts(drawn=3, trained=2), 3, "2 prompts are recorded"),
        (PromptCounts(drawn=3, trained=2, in_flight=1), 3, "the step is over"),
        (PromptCounts(drawn=3, trained=3), 4, "the data loader has given 4"),
    ],
)
def test_books_that_do_not_add_up_are_refused(counts: PromptCounts, drawn: int, what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        counts.check(drawn=drawn)


def test_the_report_at_the_end_has_every_count() -> None:
    assert str(PromptCounts(drawn=7, trained=4, filtered=2, failed=1)) == "7 drawn: 4 trained, 2 filtered, 1 failed"
    assert str(PromptCounts(drawn=1, in_flight=1)).endswith(", 1 in flight")


def test_the_ledgers_of_a_run_and_of_a_step_add_up() -> None:
    run, step = PromptCounts(drawn=8, trained=5, filtered=2, failed=1), PromptCounts()
    step.draw(4)
    step.keep_in_flight(3, "failed")
    assert run.plus(step) == PromptCounts(drawn=12, trained=5, filtered=2, failed=2, in_flight=3)
    assert run.in_flight == 0, "a step that is dropped leaves the run's counts as it was"
