"""A run that trains is watched in a terminal's pipe and served to a browser, from its first steps to its end."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e._started_command import StartedCommand, wait_for
from tests.e2e.conftest import arguments

STEPS = 6
SLOW_REWARD = """
import time

def digits(data_source, solution_str, ground_truth, extra_info):
    time.sleep(0.02)  # a step has 32 responses
    return solution_str.count("7") / max(len(solution_str), 1)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[dict[str, StartedCommand]]:
    """Commands by name; all are ended after the test."""
    commands: dict[str, StartedCommand] = {}
    yield commands
    for command in commands.values():
        command.end()


def head_at(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", f"{parts.path}head.json")
    head: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return head


@pytest.mark.nightly
def test_a_run_is_followed_until_it_ends(arithmetic: Path, tmp_path: Path, started: dict[str, StartedCommand]) -> None:
    (tmp_path / "slow.py").write_text(SLOW_REWARD)
    run = tmp_path / "watched"
    overrides = [
        "rollout=hf",
        "trainer.experiment_name=watched",
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=3",
        f"reward.function={tmp_path}/slow.py:digits",
    ]
    training = started["train"] = StartedCommand(
        ["train", *arguments(arithmetic, tmp_path, *overrides)], tmp_path / "train.log"
    )
    training.wait_for("the run's folder", lambda: (run / "config.yaml").exists())
    watching = started["watch"] = StartedCommand(
        ["watch", str(run), "--follow", "--every", "0.2"], tmp_path / "watch.log"
    )
    serving = started["serve"] = StartedCommand(["serve", str(run)], tmp_path / "serve.log")
    serving.wait_for("the address", lambda: "http://" in serving.output)
    url = serving.output.splitlines()[0]
    assert head_at(url)["runs"][0]["status"] == "running"

    assert training.ended(timeout_s=150) == 0, training.output
    assert watching.ended(timeout_s=60) == 0, watching.output
    lines = watching.output.splitlines()
    steps = [int(found[1]) for line in lines if (found := re.match(rf"step (\d+)/{STEPS}  reward/score_mean 0", line))]
    assert steps == list(range(steps[0], STEPS + 1)), watching.output
    assert f"step {STEPS}/{STEPS}" in lines[-2] and "val/mean@" in lines[-2]
    assert lines[-1] == f"watched: finished, step {STEPS} of {STEPS}"

    wait_for("the end in the report", lambda: head_at(url)["runs"][0]["status"] == "finished", 60)
    assert head_at(url)["runs"][0]["step"] == STEPS
    assert serving.interrupt() == 0, serving.output
