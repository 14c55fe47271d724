"""Timeouts in a row end a run before its stage's time is up, and name the function."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.unit._reward import sample, statuses, task
from verl_like.controller.errors import FeedbackError
from verl_like.reward.scorer_messages import Outcome
from verl_like.reward.streak import Streak
from verl_like.reward.team import ScorerTeam

SCORER = """
import asyncio, time

def score(solution_str):
    time.sleep(0 if solution_str == "1" else 100)
    return 1.0

async def score_async(solution_str):
    await asyncio.sleep(0 if solution_str == "1" else 100)
    return 1.0

def score_batch(completions, prompts, **columns):
    return [score(each) for each in completions]
"""
OK, ERROR = Outcome("ok", 1.0, {}, "", 0.1), Outcome("error", None, {}, "", 0.1)
TIMEOUT = Outcome("timeout", None, {}, "", 10.0)


def streak(num_processes: int = 1) -> Streak:
    """Of samples that may take 10 s, in a stage of 100 s."""
    return Streak(task("gsm8k", timeout_s=10.0), num_processes, stage_timeout_s=100.0)


def test_a_quarter_of_the_stage_lost_in_a_row_is_an_error() -> None:
    found = streak()
    for _ in range(2):
        found.add([TIMEOUT], 10.0, sample("1"))
        found.check()
    found.add([TIMEOUT], 10.0, sample("1" * 1000))
    with pytest.raises(FeedbackError) as stopped:
        found.check()
    reported = str(stopped.value)
    for part in (
        "reward.function=gsm8k",
        "30 s",
        "3 samples in a row",
        "reward.timeout_s=10",
        "trainer.stage_timeout_s=100",
    ):
        assert part in reported
    assert len(reported) < 1500


@pytest.mark.parametrize("other", [OK, ERROR])
def test_any_other_outcome_ends_the_row(other: Outcome) -> None:
    found = streak()
    for _ in range(10):
        found.add([TIMEOUT], 10.0, sample("1"))
        found.add([other, TIMEOUT], 10.1, sample("1"))
        found.check()


def test_processes_lose_time_side_by_side() -> None:
    found = streak(num_processes=2)
    for _ in range(4):
        found.add([TIMEOUT], 10.0, sample("1"))
    found.check()  # 20 s of each of the two
    found.add([TIMEOUT], 10.0, sample("1"))
    with pytest.raises(FeedbackError, match="5 samples in a row"):
        found.check()


def test_calls_that_time_out_side_by_side_lose_the_time_of_one() -> None:
    found = streak()
    found.add([TIMEOUT] * 32, 10.0, sample("1"))
    found.add([OK, *[TIMEOUT] * 31], 10.0, sample("1"))
    found.check()


def test_one_timeout_is_no_row_however_long() -> None:
    found = Streak(task("gsm8k", timeout_s=90.0), 1, stage_timeout_s=100.0)
    found.add([TIMEOUT], 90.0, sample("1"))
    found.check()


def test_without_a_stage_nothing_is_ever_too_much() -> None:
    found = Streak(task("gsm8k"), 1, stage_timeout_s=float("inf"))
    found.add([TIMEOUT] * 9, 1e9, sample("1"))
    found.check()


@pytest.mark.processes
@pytest.mark.alone
@pytest.mark.parametrize(
    "function",
    ["score", pytest.param("score_async", marks=pytest.mark.slow), pytest.param("score_batch", marks=pytest.mark.slow)],
)
def test_a_team_stops_with_the_functions_name_long_before_the_stage(tmp_path: Path, function: str) -> None:
    (tmp_path / "scorer.py").write_text(SCORER)

    wanted = task(f"{tmp_path}/scorer.py:{function}", timeout_s=0.3, max_concurrency=2)
    with ScorerTeam(wanted, 2, stage_timeout_s=8.0) as team:
        assert statuses(team.score([sample("1"), sample("gone"), sample("1")])) == ["ok", "timeout", "ok"]
        started = time.monotonic()
        with pytest.raises(
            FeedbackError, match=rf"reward.function=.*:{function} has not answered for \d s: \d+ samples"
        ):
            team.score([sample("gone")] * 200)
        assert time.monotonic() - started < 6
