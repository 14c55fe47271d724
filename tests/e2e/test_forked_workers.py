"""The workers of a command on CPU are forked from one process, and end with it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.e2e._started_command import StartedCommand, wait_for
from tests.e2e.conftest import arguments
from verl_like.telemetry.trackers import read_metrics


def fork_servers(command: StartedCommand) -> list[psutil.Process]:
    return [process for process in command.members if process.is_running() and process.name() == "fork server"]


@pytest.mark.slow
def test_workers_are_forked_and_the_end_of_their_server_ends_the_run(arithmetic: Path, tmp_path: Path) -> None:
    options = (
        "rollout=hf",
        "trainer.total_training_steps=999",
        "trainer.test_freq=0",
        "trainer.val_before_train=false",
    )
    command = StartedCommand(["train", *arguments(arithmetic, tmp_path, *options)], tmp_path / "log")
    try:
        metrics = tmp_path / "default/metrics.jsonl"
        command.wait_for("its first step", lambda: metrics.exists() and bool(read_metrics(metrics)))
        [server] = fork_servers(command)
        workers = server.children()
        assert len(workers) == 2 and all("WorkerHost" in worker.name() for worker in workers), workers
        server.kill()
        assert command.ended(timeout_s=60) == 1
        assert "worker rank" in command.output and "Traceback" not in command.output
        wait_for("the end of every process", lambda: not command.survivors(), 20)
    finally:
        command.end()
