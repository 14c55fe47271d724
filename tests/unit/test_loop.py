"""The loop resumes, validates, saves, counts steps and stops cleanly, for every trainer."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.unit._savers import Saver
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import FeedbackError, Interrupt, Interrupted
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Savable
from verl_like.telemetry.trackers import JsonlTracker, Trackers
from verl_like.training.loop import Trainer, TrainingLoop
from verl_like.training.step_metrics import Metrics


class Counting(Trainer):
    """Counts; ``scores`` are those of its validations, ``disturb`` is called in each step with its number."""

    job = "train"

    def __init__(self, scores: Mapping[int, float] | None = None, disturb: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self._scores, self._disturb = scores or {}, disturb
        self.num_val_prompts = len(self._scores)
        self.calls: list[str] = []
        self.actor = Saver("actor")

    @property
    def learners(self) -> Mapping[str, Savable]:
        return {"actor": self.actor}

    @property
    def num_in_flight(self) -> int:
        return 8

    def start(self) -> None:
        self.calls.append("start")

    def step(self, step: int) -> Metrics:
        if self._disturb is not None:
            self._disturb(step)
        self.calls.append(f"step {step}")
        return {"time/step_s": 2.0, "perf/tokens": 3.0}

    def validate(self) -> Metrics:
        self.calls.append("validate")
        return {"val/all/score/mean@1": self._scores[self.progress.step]}

    def state(self) -> dict[str, Any]:
        return {"step": self.progress.step, "weight_version": self.progress.step}

    def load(self, state: dict[str, Any], path: Path) -> None:
        assert path.is_absolute() and (path / "actor/weights").exists()
        self.progress.step = state["step"]
        self.calls.append(f"load {state['job']} {state['step']}")

    def truncate_after(self, step: int) -> None:
        self.calls.append(f"truncate {step}")

    def close(self) -> None:
        self.calls.append("close")


def loop_of(trainer: Trainer, out: Path, *, total_steps: int = 4, **settings: Any) -> TrainingLoop:
    config = Config()
    config.trainer.output_dir = str(out)
    config.trainer.save_freq = settings.pop("save_freq", 0)
    for name, value in settings.items():
        setattr(config.trainer, name, value)
    folder = RunFolder(config)
    folder.path.mkdir(parents=True, exist_ok=True)
    trackers = Trackers([JsonlTracker(folder.metrics)])
    return TrainingLoop(
        config, trainer, folder, trackers, process_metrics=Mock(), processes=[], total_steps=total_steps
    )


def logged(loop: TrainingLoop) -> dict[int, dict[str, float]]:
    lines = [json.loads(line) for line in loop.folder.metrics.read_text().splitlines()]
    return {line["step"]: line for line in lines}


def test_a_run_saves_where_that_is_due_and_at_its_end_and_then_continues(tmp_path: Path) -> None:
    first = Counting()
    loop = loop_of(first, tmp_path, total_steps=3, save_freq=2)
    progress = loop.run()
    assert first.calls == ["truncate -1", "start", "step 1", "step 2", "step 3", "close"]
    assert loop.checkpoints.steps() == [2, 3]
    assert (progress.step, progress.seconds, progress.tokens) == (3, 6.0, 9)
    again = Counting()
    assert loop_of(again, tmp_path, total_steps=4).run().step == 4
    assert again.calls == ["load train 3", "truncate 3", "start", "step 4", "close"]


def test_a_best_value_is_saved_at_once_and_the_first_one_is_no_candidate(tmp_path: Path) -> None:
    trainer = Counting({0: 0.9, 2: 0.5, 4: 0.4})
    loop = loop_of(trainer, tmp_path, val_before_train=True, test_freq=2, best_metric="val/all/score/mean@1")
    progress = loop.run()
    assert (progress.initial_val, progress.best, progress.best_step, progress.last_val) == (0.9, 0.5, 2, 0.4)
    assert loop.checkpoints.steps() == [2, 4] and (loop.checkpoints.folder / "best").readlink() == Path("step_2")
    assert [step for step, metrics in logged(loop).items() if "val/all/score/mean@1" in metrics] == [0, 2, 4]


def test_the_best_loss_is_the_lowest(tmp_path: Path) -> None:
    trainer = Counting({1: 0.6, 2: 0.4, 3: 0.4, 4: 0.5})
    trainer.lower_is_better = True
    loop = loop_of(trainer, tmp_path, val_before_train=False, test_freq=1, best_metric="val/all/score/mean@1")
    progress = loop.run()
    assert (progress.best_step, progress.last_val) == (2, 0.5)
    assert (loop.checkpoints.folder / "best").readlink() == Path("step_2")


def test_an_unknown_best_metric_ends_the_run_and_the_step_is_logged_and_saved(tmp_path: Path) -> None:
    loop = loop_of(Counting({2: 0.5}), tmp_path, test_freq=2, val_before_train=False, best_metric="val/other")
    with pytest.raises(FeedbackError, match=r"best_metric is 'val/other', but validation gives \['val/all"):
        loop.run()
    assert loop.checkpoints.steps() == [2] and sorted(logged(loop)) == [1, 2]
    assert isinstance(loop.process_metrics, Mock)
    loop.process_metrics.write.assert_called_once_with()  # the ledger has the last step


def interrupt(step: int) -> None:
    if step == 3:
        raise Interrupted("rollout")


def fail(step: int) -> None:
    if step == 3:
        raise FeedbackError("too many failures")


def test_a_step_that_is_interrupted_is_dropped_and_the_one_before_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = Counting(disturb=interrupt)
    loop = loop_of(trainer, tmp_path)
    with caplog.at_level(logging.WARNING):
        assert loop.run().step == 2
    assert loop.checkpoints.steps() == [2] and trainer.calls[-1] == "close"
    assert "interrupted in rollout; the unfinished step is dropped, and its 8 prompts are drawn again" in caplog.text


def test_ctrl_c_between_steps_ends_the_run_with_the_last_step_saved(tmp_path: Path) -> None:
    loop = loop_of(Counting(disturb=lambda step: current(Interrupt).set() if step == 2 else None), tmp_path)
    try:
        assert loop.run().step == 2
    finally:
        current(Interrupt).clear()
    assert loop.checkpoints.steps() == [2]


def test_feedback_that_ends_the_run_leaves_the_last_finished_step_in_a_checkpoint(tmp_path: Path) -> None:
    trainer = Counting(disturb=fail)
    loop = loop_of(trainer, tmp_path)
    with pytest.raises(FeedbackError, match="too many failures"):
        loop.run()
    assert loop.checkpoints.steps() == [2] and "close" not in trainer.calls


def test_another_error_saves_nothing(tmp_path: Path) -> None:
    """Learners may be in the middle of an update."""

    def break_down(step: int) -> None:
        assert step < 3, "broken"

    loop = loop_of(Counting(disturb=break_down), tmp_path)
    with pytest.raises(AssertionError, match="broken"):
        loop.run()
    assert loop.checkpoints.steps() == []
