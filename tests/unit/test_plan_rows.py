"""Plans of the commands that train on given rows: sft, dpo and rm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_plan import QWEN2_7B, config_for, h100s, written
from verl_like.cli import main
from verl_like.config.reads import reads
from verl_like.config.schema import Config
from verl_like.plan import job_choices
from verl_like.plan.advice import advice
from verl_like.plan.devices import DEVICES
from verl_like.plan.run_plan import RunPlan, plan_of, shapes_of
from verl_like.plan.stages import Location
from verl_like.plan.step import JOBS, planned_config
from verl_like.training.row_jobs import ROW_JOBS

ENGINE_PARTS = {"engine weights", "KV cache", "engine's steps", "buckets"}
CPU = Location(device=replace(DEVICES["H100"], kind="cpu", name="cpu"), ranks=2, ranks_per_node=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "7b", QWEN2_7B)


@pytest.fixture
def config(folder: Path) -> Config:
    config = config_for(folder)
    config.data.max_prompt_length = config.data.max_response_length = 1024
    config.data.train_batch_size = 64
    return config


def planned(config: Config, job: str, location: Location | None = None) -> RunPlan:
    own = planned_config(config, job)
    return plan_of(own, shapes_of(own, job=job), location or h100s(8), job=job)


def test_each_command_that_trains_has_a_plan() -> None:
    assert set(JOBS) == {"train", *ROW_JOBS}


@pytest.mark.parametrize("job", ROW_JOBS)
@pytest.mark.parametrize("location", [h100s(8), CPU], ids=["gpu", "cpu"])
def test_a_run_on_given_rows_has_no_engine(config: Config, job: str, location: Location) -> None:
    config.algorithm.adv_estimator, config.actor.kl_loss_coef = "gae", 0.1  # for train, a critic and a reference
    config.reward.num_workers = 8
    plan = planned(config, job, location)
    before = ["ref_log_probs"] if job == "dpo" else []
    assert list(plan.stages) == [*before, "update_actor"]
    assert list(plan.seconds) == [*before, "update_actor", "driver"]
    assert not ENGINE_PARTS & {part for parts in plan.stages.values() for part in parts}
    assert set(plan.shapes) == {"actor"} and plan.holds_a_row
    assert not {"driver and scorers", "sleeping engines"} & set(plan.host)


def test_supervised_training_that_generates_has_the_memory_of_an_engine_and_the_seconds_of_none(config: Config) -> None:
    config.model.gradient_checkpointing, config.actor.max_tokens_per_micro_batch = "8", "8192"
    config.reward.num_workers = 8
    alone = planned(config, "sft")
    config.sft.val_generate = True
    plan, others = planned(config, "sft"), planned(config, "dpo")
    assert list(plan.stages) == ["rollout", "update_actor", "sync"] and plan.cache_tokens > 0
    assert plan.seconds == alone.seconds and plan.step_s == alone.step_s
    assert plan.stages["update_actor"] == alone.stages["update_actor"], "the engine sleeps during an update"
    assert {"engine weights", "KV cache", "engine's steps", "actor optimiser"} <= set(plan.stages["rollout"])
    assert plan.host["driver and scorers"] > alone.host["driver"]
    assert not others.step.generates, "the option is of sft"


def test_the_reward_model_of_a_validation_is_in_memory_at_all_times(config: Config, folder: Path) -> None:
    config.sft.val_generate, config.reward.model.path = True, str(folder)
    plan = planned(config, "sft")
    assert list(plan.seconds) == ["update_actor", "driver"]
    assert plan.stages["update_actor"]["reward model weights"] == 2 * plan.shapes["reward model"].num_parameters / 8
    share = float(plan.config.rollout.gpu_memory_utilization)
    config.reward.model.path = ""
    assert share < float(planned(config, "sft").config.rollout.gpu_memory_utilization)


@pytest.mark.parametrize("job", ROW_JOBS)
def test_an_update_is_that_of_reinforcement_learning_with_as_many_rows(config: Config, job: str) -> None:
    """A pair is a group of two responses, and an update has all rows of a step."""
    config.model.gradient_checkpointing, config.actor.max_tokens_per_micro_batch = "8", "8192"
    config.actor.mini_batch_size = 16
    plan = planned(config, job)
    alone = replace(
        config,
        rollout=replace(config.rollout, n=1 if job == "sft" else 2),
        actor=replace(config.actor, mini_batch_size=config.data.train_batch_size),
    )
    shapes = {**shapes_of(alone), "actor": plan.shapes["actor"]}
    same = plan_of(alone, shapes, h100s(8))
    assert plan.stages["update_actor"] == same.stages["update_actor"]
    assert plan.seconds["update_actor"] == same.seconds["update_actor"]
    assert plan.disk == same.disk


def test_the_reference_is_computed_once_and_is_in_memory_only_if_it_is_another_model(
    config: Config, folder: Path
) -> None:
    own = planned(config, "dpo")
    assert own.step_s == pytest.approx(own.seconds["update_actor"] + own.seconds["driver"])
    assert own.bytes_in("ref_log_probs") < own.bytes_in("update_actor")
    config.dpo.ref_path = str(folder)
    other = planned(config, "dpo")
    weights = 2 * other.shapes["ref"].num_parameters / 8
    assert other.stages["update_actor"]["ref weights"] == weights
    assert "ref weights" not in own.stages["update_actor"] and set(other.shapes) == {"actor", "ref"}
    config.ref.fsdp.offload_params = True
    assert "ref weights" not in planned(config, "dpo").stages["update_actor"]


def test_a_reward_model_has_no_logits(config: Config) -> None:
    plans = {job: planned(config, job) for job in ("dpo", "rm")}
    assert plans["rm"].shapes["actor"].vocab_size == 0
    assert plans["rm"].shapes["actor"].num_parameters == plans["dpo"].shapes["actor"].num_parameters - 152064 * 3584
    config.model.gradient_checkpointing, config.actor.max_tokens_per_micro_batch = "28", "8192"
    assert planned(config, "rm").seconds["update_actor"] < planned(config, "dpo").seconds["update_actor"]


def test_both_rows_of_a_pair_share_their_prompt(config: Config) -> None:
    config.model.gradient_checkpointing, config.actor.max_tokens_per_micro_batch = "0", "8192"
    shared = planned(config, "dpo").seconds["update_actor"]
    config.model.share_prompts = False
    # Responses are half as long as they may be: 1024 + 2 * 512 tokens a pair, or 2 * (1024 + 512).
    assert shared / planned(config, "dpo").seconds["update_actor"] == pytest.approx(2 / 3, rel=0.05)


def test_options_that_are_auto_have_the_values_of_the_plan(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_choices, "location_of", lambda config, is_timed: h100s(4))
    config.data.train_batch_size = 512
    for job in ROW_JOBS:
        found, plan = job_choices.for_given_rows(config, job), planned(config, job, h100s(4))
        assert found.actor.max_tokens_per_micro_batch == plan.config.actor.max_tokens_per_micro_batch
        assert found.model.gradient_checkpointing == plan.config.model.gradient_checkpointing
        assert found.rollout == config.rollout and found.actor.mini_batch_size == config.actor.mini_batch_size
    generating = replace(config, sft=replace(config.sft, val_generate=True))
    chosen = job_choices.for_given_rows(generating, "sft").rollout
    assert float(chosen.gpu_memory_utilization) > 0.2 and int(chosen.max_num_seqs) >= 256
    assert chosen.n == config.rollout.n
    with_ref = replace(config, dpo=replace(config.dpo, ref_path=config.model.path))
    layers = [int(job_choices.for_given_rows(each, "dpo").model.gradient_checkpointing) for each in (config, with_ref)]
    assert layers[0] < layers[1], "a second model leaves less memory for activations"


def test_changes_that_make_it_fit_are_options_that_it_reads(config: Config, folder: Path) -> None:
    config.dpo.ref_path = str(folder)
    own = planned_config(config, "dpo")
    location = Location(device=DEVICES["4090"], ranks=4, ranks_per_node=4)
    found = advice(own, shapes_of(own, job="dpo"), location, job="dpo")
    changed = [change.override.partition("=")[0] for change in found.changes]
    assert {"actor.optim.offload", "ref.fsdp.offload_params"} <= set(changed)
    assert [name for name in changed if not reads("dpo", name)] == []


def test_the_command_prints_what_runs_only_in_validations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sft", "--device", "H100", f"model.path={folder}", "cluster.workers_per_node=8", "sft.val_generate=true"]
    assert main(["plan", *words]) == 0
    shown = capsys.readouterr().out
    assert "only in validations, and without seconds here: rollout, sync" in shown and "engine's cache: " in shown


@pytest.mark.parametrize("job", ROW_JOBS)
def test_the_command_prints_the_plan_of_a_job(job: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [job, "--device", "H100", f"model.path={folder}", "cluster.workers_per_node=8"]
    assert main(["plan", *words]) == 0
    shown = capsys.readouterr().out
    assert "update_actor" in shown and "It fits: the peak is" in shown
    assert "rollout" not in shown and "engine" not in shown
    assert ("before the first step, once for all rows: ref_log_probs" in shown) == (job == "dpo")
    assert ("logits at once" in shown) == (job != "rm")
