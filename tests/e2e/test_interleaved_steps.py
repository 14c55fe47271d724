"""Two steps that are open at once, stage by stage: each has the numbers that it has alone."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import base_overrides
from verl_like.algorithms.roles import needs
from verl_like.config.compose import compose
from verl_like.controller import ray_calls
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.templates import load_tokenizer
from verl_like.runs.first_difference import compare
from verl_like.runs.folder import RunFolder
from verl_like.runs.snapshot_files import snapshot_of
from verl_like.telemetry.metrics import repeats
from verl_like.telemetry.trackers import Trackers
from verl_like.training import stages
from verl_like.training.build import stack
from verl_like.training.parts import parts_of
from verl_like.training.ppo import PPOTrainer
from verl_like.training.step_metrics import Metrics
from verl_like.training.step_state import StepState
from verl_like.training.tasks import prompt_loader, train_prompts

pytestmark = pytest.mark.usefixtures("ray_cluster")

# What depends on the actor's weights happens in the update itself: there is one a step, so no stage of old log-probs;
# and without a least gap the rollout's log-probs are corrected whatever the last closed step has measured.
OVERRIDES = (
    "rollout=hf",
    "actor.kl_loss_coef=0.01",
    "algorithm.rollout_correction.min_gap=0",
    "rollout.sync_checksum=true",
    "trainer.num_capsules=2",
)


@contextmanager
def trainer_of(data: Path, out: Path) -> Iterator[PPOTrainer]:
    config = compose(None, [*base_overrides(data, out), "data.val_files=[]", *OVERRIDES]).config
    tokenizer = load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)
    folder = RunFolder(config)
    with stack(config, tokenizer, folder, roles=needs(config).roles, actor_updates=2, critic_updates=0) as built:
        loader = prompt_loader(config, train_prompts(config, tokenizer))
        trainer = PPOTrainer(parts_of(config, built, folder, loader=loader, trackers=Trackers([])))
        assert not trainer.parts.needs.old_log_probs and trainer.parts.needs.ref
        trainer.start()
        yield trainer


def generated(trainer: PPOTrainer, state: StepState) -> RemoteBatch:
    batch = stages.rollout(trainer.parts, state)
    return stages.keep_position(trainer.parts, state, batch)


def learnt(trainer: PPOTrainer, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    for take in (stages.balance_update, stages.update_actor, stages.record_trained):
        take(trainer.parts, state, batch)
    return batch


def in_a_row(trainer: PPOTrainer) -> list[Metrics]:
    """Take one step after the other, both from the first weights."""
    parts, closed = trainer.parts, []
    for step in (1, 2):
        state = trainer.open_step(step)
        batch = generated(trainer, state)
        stages.add_log_probs(parts, state, batch)
        batch = stages.add_advantages(parts, state, stages.score(parts, state, batch))
        learnt(trainer, state, batch)
        if step == 2:
            stages.sync(parts, state, batch)
        closed.append(trainer.close_step(state))
    return closed


def interleaved(trainer: PPOTrainer) -> list[Metrics]:
    """Take both steps at once; the second has its scores and its log-probs before the first."""
    parts = trainer.parts
    first, second = trainer.open_step(1), trainer.open_step(2)
    of_first, of_second = generated(trainer, first), generated(trainer, second)
    assert trainer.num_in_flight == 16
    stages.add_log_probs(parts, second, of_second)
    of_second = stages.score(parts, second, of_second)
    stages.add_log_probs(parts, first, of_first)
    of_second = stages.add_advantages(parts, second, of_second)
    of_first = stages.add_advantages(parts, first, stages.score(parts, first, of_first))
    learnt(trainer, first, of_first)
    closed = [trainer.close_step(first)]
    assert trainer.num_in_flight == 8
    learnt(trainer, second, of_second)
    stages.sync(parts, second, of_second)
    return [*closed, trainer.close_step(second)]


def taken(data: Path, out: Path, order: Callable[[PPOTrainer], list[Metrics]]) -> tuple[list[Metrics], Path]:
    with trainer_of(data, out) as trainer:
        metrics = order(trainer)
        prompts = trainer.progress.prompts
        assert (prompts.drawn, prompts.trained, trainer.num_in_flight) == (16, 16, 0)
        assert trainer.loader_state == trainer.parts.loader.state_dict(), "the next step draws what comes after both"
        assert_a_dropped_step_leaves_nothing(trainer)
        return metrics, RunFolder(trainer.parts.config).snapshots


def assert_a_dropped_step_leaves_nothing(trainer: PPOTrainer) -> None:
    before = ray_calls.num_references()
    batch = generated(trainer, trainer.open_step(3))
    assert (ray_calls.num_references() or 0) > (before or 0)
    del batch
    gc.collect()
    deadline = time.monotonic() + 10
    while ray_calls.num_references() != before and time.monotonic() < deadline:
        time.sleep(0.05)  # a thread that has just made a call frees its references a moment later
    assert ray_calls.num_references() == before


def test_two_interleaved_steps_have_the_numbers_of_the_same_steps_in_a_row(arithmetic: Path, tmp_path: Path) -> None:
    expected, recorded = taken(arithmetic, tmp_path / "row", in_a_row)
    found, replayed = taken(arithmetic, tmp_path / "interleaved", interleaved)
    for step, (ours, peer) in enumerate(zip(found, expected, strict=True), 1):
        assert {name: value for name, value in ours.items() if repeats(name)} == {
            name: value for name, value in peer.items() if repeats(name)
        }
        rows = compare(snapshot_of(recorded, step), snapshot_of(replayed, step) or replayed, {})
        assert rows.difference is None and rows.num_rows == 32
    assert expected[0]["actor/grad_norm"] > 0 and expected[0]["actor/loss"] != expected[1]["actor/loss"]
    assert "sync/checksum" in expected[1]
