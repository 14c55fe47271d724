"""What begins again by itself, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from verl_like.checks.manifest import write_manifest
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import (
    FeedbackError,
    Interrupt,
    RayLost,
    StageTimeout,
    StallError,
    WorkerError,
    WorkerRefusal,
)
from verl_like.disk import DiskRefused
from verl_like.runs.restarts import COUNT_VARIABLE, restart_program, with_restarts


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = Config()
    config.trainer.output_dir, config.trainer.experiment_name = str(tmp_path), "run"
    config.trainer.max_restarts, config.trainer.resume = 2, "never"
    return config


def failing(times: int, error: Exception) -> tuple[list[str], Callable[[Config], int]]:
    """A start that fails so often, and the ``trainer.resume`` of each start."""
    resumes: list[str] = []

    def start(config: Config) -> int:
        resumes.append(config.trainer.resume)
        if len(resumes) <= times:
            raise error
        return 7

    return resumes, start


@pytest.mark.parametrize("error", [WorkerError("rank 1 died"), StageTimeout("update took longer")])
def test_lost_processes_are_rebuilt_as_often_as_allowed(config: Config, error: Exception) -> None:
    starts, start = failing(2, error)
    assert with_restarts(config, start) == 7
    assert starts == ["never"] * 3, "without a checkpoint it begins as it began"
    starts, start = failing(3, error)
    with pytest.raises(type(error)):
        with_restarts(config, start)
    assert len(starts) == 3


def test_a_restart_continues_from_the_newest_checkpoint_of_the_run_itself(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "run/checkpoints/step_3"
    folder.mkdir(parents=True)
    (folder / "trainer.json").write_text(json.dumps({"job": "train", "step": 3}))
    write_manifest(folder)
    half = folder.with_name(".writing-step_4")
    half.mkdir()
    starts, start = failing(1, WorkerError("rank 1 died"))
    with_restarts(config, start)
    assert starts == ["never", "auto"] and not half.exists()


@pytest.mark.parametrize(
    "error", [WorkerRefusal("no such file"), FeedbackError("no scores"), DiskRefused("full"), ValueError("bad")]
)
def test_errors_that_would_repeat_are_reported_at_once(config: Config, error: Exception) -> None:
    starts, start = failing(1, error)
    with pytest.raises(type(error)):
        with_restarts(config, start)
    assert len(starts) == 1


@pytest.mark.parametrize(("on_stall", "num_starts"), [("abort", 1), ("restart", 2)])
def test_a_stall_restarts_where_that_is_asked_for(config: Config, on_stall: str, num_starts: int) -> None:
    config.trainer.on_stall = on_stall
    starts, start = failing(1, StallError("rank 1 hangs"))
    if num_starts == 1:
        with pytest.raises(StallError):
            with_restarts(config, start)
    else:
        with_restarts(config, start)
    assert len(starts) == num_starts


def test_a_run_that_is_to_end_is_not_begun_again(config: Config) -> None:
    starts, start = failing(1, WorkerError("rank 1 died"))
    current(Interrupt).set()
    try:
        with pytest.raises(WorkerError):
            with_restarts(config, start)
    finally:
        current(Interrupt).clear()
    assert len(starts) == 1


@pytest.mark.parametrize(("before", "of_error", "count"), [("", 0, "1"), ("1", 0, "2"), ("", 1, "2"), ("2", 0, None)])
def test_a_lost_ray_takes_a_restart_wherever_in_the_start_it_is_lost(
    config: Config, before: str, of_error: int, count: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that took another's place has its count in the environment until ``with_restarts`` takes it."""
    started: list[str] = []
    monkeypatch.setattr("os.execve", lambda program, words, environment: started.append(environment[COUNT_VARIABLE]))
    if before:
        monkeypatch.setenv(COUNT_VARIABLE, before)
    lost = RayLost("Ray's raylet was ended by SIGKILL while Ray started")
    lost.num_restarts = of_error
    restart_program(config, lost)
    assert started == ([] if count is None else [count])
