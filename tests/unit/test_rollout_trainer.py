"""Opening and closing steps: what a step keeps to itself, and what closing it adds to the run."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from verl_like.config.schema import Config
from verl_like.config.schema.trainer import TrainerConfig
from verl_like.context import current
from verl_like.telemetry.ledger import Ledger, stage
from verl_like.training import stages
from verl_like.training.async_trainer import AsyncTrainer
from verl_like.training.one_step_off import OneStepOffTrainer
from verl_like.training.ppo import PPOTrainer
from verl_like.training.step_state import StepState


class Loader:
    """Counts prompts."""

    batches_per_epoch = 1

    def __init__(self) -> None:
        self.num_drawn = 0

    def state_dict(self) -> dict[str, int]:
        return {"num_drawn": self.num_drawn}

    def metrics(self) -> dict[str, float]:
        return {}


@pytest.fixture
def trainer() -> PPOTrainer:
    return PPOTrainer(Mock(config=Config(), loader=Loader(), run_plan=None))


def drawn(trainer: PPOTrainer, step: int, num_prompts: int = 4) -> StepState:
    """An open step with so many prompts in flight and the position after them."""
    state, loader = trainer.open_step(step), trainer.parts.loader
    loader.num_drawn += num_prompts
    state.num_drawn = loader.num_drawn
    state.prompts.draw(num_prompts)
    stages.keep_position(trainer.parts, state, Mock())
    state.metrics.add({"perf/tokens": 1.0})
    return state


def test_a_closed_step_is_added_to_the_run_and_the_others_stay_out_of_it(trainer: PPOTrainer) -> None:
    first, second = drawn(trainer, 1), drawn(trainer, 2)
    first.prompts.keep_in_flight(0, "trained")
    first.version = 1
    metrics = trainer.close_step(first)
    assert metrics["prompts/drawn"] == metrics["prompts/trained"] == 4
    assert trainer.loader_state == {"num_drawn": 4}, "a run that continues draws the prompts of the open step again"
    assert (trainer.version, trainer.num_in_flight) == (1, 4)
    second.prompts.keep_in_flight(0, "filtered")
    assert trainer.close_step(second)["prompts/drawn"] == 8
    assert (trainer.progress.prompts.trained, trainer.progress.prompts.filtered) == (4, 4)


def test_a_step_with_prompts_in_flight_cannot_be_closed(trainer: PPOTrainer) -> None:
    with pytest.raises(AssertionError, match="some of its prompts are in flight"):
        trainer.close_step(drawn(trainer, 1))


def test_a_step_that_has_not_kept_the_loaders_position_cannot_be_closed(trainer: PPOTrainer) -> None:
    with pytest.raises(AssertionError, match="step 1 has not kept the data loader's position"):
        trainer.close_step(trainer.open_step(1))


def test_opening_a_step_takes_no_seconds_from_the_open_one(trainer: PPOTrainer) -> None:
    current(Ledger).take()
    with stage("validation"):  # between steps
        time.sleep(0.02)
    first = drawn(trainer, 1)
    with stage("rollout"):
        time.sleep(0.02)
    second = drawn(trainer, 2)
    for state in (first, second):
        state.prompts.keep_in_flight(0, "trained")
        state.metrics.add({"perf/response_tokens": 1.0})
    metrics = trainer.close_step(first)
    assert metrics["time/rollout_s"] >= 0.02 and "time/validation_s" not in metrics
    assert "time/rollout_s" not in trainer.close_step(second), "the first step has had them"


def test_a_step_cannot_continue_from_batches_of_which_some_prompts_were_learnt_from(trainer: PPOTrainer) -> None:
    state = {"step": 4, "window": {"next": 3, "left": {"3": [1], "4": []}}}
    with pytest.raises(ValueError, match=r"after 4 steps the prompts of batch 3 .* Set trainer\.schedule=async"):
        trainer.load(state, Path("step_4"))
    one_step_off = object.__new__(OneStepOffTrainer)
    one_step_off.parts = trainer.parts
    with pytest.raises(ValueError, match=r"of batch 3 only some prompts are left .* Set trainer\.schedule=async"):
        one_step_off.load(state, Path("step_4"))


def test_a_run_that_continues_cannot_follow_a_record_of_its_beginning() -> None:
    trainer = object.__new__(AsyncTrainer)
    trainer.parts = Mock(config=Config(trainer=TrainerConfig(replay_schedule="schedule.jsonl")))
    trainer._start = 3
    with pytest.raises(ValueError, match=r"this one continues after step 3\. Choose another trainer.experiment_name"):
        trainer.start()


@pytest.mark.parametrize(("step", "every", "resets"), [(1, 2, 0), (2, 2, 1), (4, 2, 1), (4, 0, 0)])
def test_the_reference_is_reset_every_so_many_steps(
    trainer: PPOTrainer, monkeypatch: pytest.MonkeyPatch, step: int, every: int, resets: int
) -> None:
    monkeypatch.setattr(trainer.parts.config.ref, "reset_every", every)
    state = trainer.open_step(step)
    stages.reset_reference(trainer.parts, state, Mock())
    assert trainer.parts.ref is not None and trainer.parts.ref.reset.call_count == resets  # type: ignore[attr-defined]


def test_a_teacher_that_is_an_average_follows_the_policy_and_is_in_checkpoints(
    trainer: PPOTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.parts.critic = None
    algorithm = trainer.parts.config.algorithm
    for name, value in (("distill_coef", 1.0), ("distill_teacher", "ema"), ("distill_ema", 0.25)):
        monkeypatch.setattr(algorithm, name, value)
    stages.reset_reference(trainer.parts, trainer.open_step(3), Mock())
    assert trainer.parts.ref is not None
    trainer.parts.ref.reset.assert_called_once_with(weight=0.25)  # type: ignore[attr-defined]
    assert set(trainer.learners) == {"actor", "ref"}
    monkeypatch.setattr(algorithm, "distill_teacher", "base")
    assert set(trainer.learners) == {"actor"}


def test_a_checkpoint_holds_the_reference_only_if_it_is_reset(trainer: PPOTrainer) -> None:
    trainer.parts.critic = None
    assert set(trainer.learners) == {"actor"}
    trainer.parts.config.ref.reset_every = 3
    assert set(trainer.learners) == {"actor", "ref"}
    trainer.parts.ref = None
    assert set(trainer.learners) == {"actor"}


def test_a_run_that_continues_takes_the_reference_of_the_checkpoint(
    trainer: PPOTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer.parts.config.ref.reset_every = 3
    trainer._load_reference(tmp_path / "ref")
    load = trainer.parts.ref.load  # type: ignore[union-attr]
    assert not load.called, "a checkpoint of a run without resets has none: its reference is the initial model"
    (tmp_path / "ref").mkdir()
    trainer._load_reference(tmp_path / "ref")
    load.assert_called_once_with(str(tmp_path / "ref"))
    trainer.parts.config.ref.reset_every = 0
    trainer._load_reference(tmp_path / "ref")
    assert load.call_count == 1 and "Restore ref.reset_every or algorithm.distill_teacher=ema" in caplog.text
