"""The short form of the fault matrix (``make chaos`` plays all of it): one process hangs, and the run gets over it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.chaos.cases import CASES
from tests.chaos.play import Outcome, play, undisturbed
from tests.chaos.scene import STEPS, make_data
from verl_like.telemetry.trackers import read_metrics

[KILLED] = [case for case in CASES if case.name == "driver-episode-sigkill-gone"]
[HANG] = [case for case in CASES if case.name == "worker-rank-1-update_actor-hang-restarted"]


def test_the_matrix_has_cases_enough_and_no_name_twice() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    out = tmp_path_factory.mktemp("chaos")
    outcome = play(HANG, data=make_data(out / "data"), out=out / "case", reference=None)
    return outcome, out / "case/run"


@pytest.mark.slow
def test_a_worker_that_hangs_is_named_and_the_run_restarts_and_leaves_nothing(played: tuple[Outcome, Path]) -> None:
    outcome, run = played
    assert not outcome.problems
    assert outcome.verdict_s is not None and outcome.verdict_s < 60
    [stall] = (run / "stalls").iterdir()
    stacks = (stall / "stacks.txt").read_text()
    assert all(f"== {who}" in stacks for who in ("the driver", "worker rank 0", "worker rank 1", "advantages rank 0"))
    assert "_hang (sitecustomize.py" in stacks


@pytest.mark.slow
def test_the_books_add_up_for_every_process_and_the_trace_shows_a_lane_for_each(played: tuple[Outcome, Path]) -> None:
    _, run = played
    rows = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    of_step: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        assert sum(row["seconds"].values()) == pytest.approx(row["wall_s"], rel=0.03)
        of_step[row["step"]].add(row["process"])
    expected = {"the driver", "worker rank 0", "worker rank 1", "advantages rank 0", "scorer host 0"}
    assert set(of_step) == {1, 2, 3, 4} and all(expected <= found for found in of_step.values())
    stages = {stage for row in rows if row["process"] == "worker rank 0" for stage in row["seconds"]}
    assert {"rollout", "values", "update_actor", "sync", "wait/driver", "wait/peer", "wait/store"} <= stages
    events = json.loads((run / "trace.json").read_text())
    assert expected <= {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"rollout", "update_actor"} <= {event["name"] for event in events if event["ph"] == "X"}


@pytest.mark.nightly
def test_a_run_that_is_killed_in_mid_episode_continues_to_the_numbers_of_an_undisturbed_one(tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    reference = undisturbed(tmp_path / "undisturbed", data, KILLED)
    outcome = play(KILLED, data=data, out=tmp_path / "killed", reference=reference)
    assert not outcome.problems and outcome.is_equal
    metrics = read_metrics(tmp_path / "killed/run/metrics.jsonl")
    expected = {step: 8 * step for step in range(1, STEPS + 1)}
    assert metrics["prompts/drawn"] == metrics["prompts/trained"] == expected, (
        "the prompts are drawn again, counted once"
    )
    assert min(metrics["env/turns"].values()) > 1
