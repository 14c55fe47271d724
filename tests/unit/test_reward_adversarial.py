"""Answers made to stall a grader, on the real scorer process: each is graded, and none comes near the deadline."""

from __future__ import annotations

import time

import pytest

from tests.graders.test_math_answer import HOSTILE
from tests.unit._reward import sample, scorer_process, statuses, task

pytestmark = [pytest.mark.alone, pytest.mark.processes]
TIMEOUT_S = 3.0
WRAPPERS = ("\\boxed{%s}", "#### %s", "The answer is %s", "<think>%s</think><answer>%s</answer>", "%s")
TRUTHS = {"math": "7", "gsm8k": "7", "exact_match": "7", "choice": "C", "format": "", "repetition": ""}


@pytest.mark.parametrize("function", list(TRUTHS))
def test_hostile_answers_are_graded_within_their_deadline_in_a_process_that_lives(function: str) -> None:
    responses = [wrapper.replace("%s", hostile) for hostile in HOSTILE.values() for wrapper in WRAPPERS]
    with scorer_process(task(function, timeout_s=TIMEOUT_S, max_memory_gib=1.0)) as scorer:
        started = time.monotonic()
        outcomes = scorer.score([sample(response, TRUTHS[function]) for response in responses])
        seconds = time.monotonic() - started
    assert set(statuses(outcomes)) == {"ok"}
    assert max(outcome.seconds for outcome in outcomes) < TIMEOUT_S
    if function in ("math", "gsm8k", "exact_match", "choice"):
        assert {outcome.score for outcome in outcomes} == {0.0}
    print(
        f"{function}: {len(outcomes)} hostile responses in {seconds:.1f} s, the slowest "
        f"{max(o.seconds for o in outcomes):.2f} s"
    )
