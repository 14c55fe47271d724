"""The values that a plan takes for options that are auto."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_plan import QWEN2_7B, config_for, h100s, written
from verl_like.config.compose import compose
from verl_like.config.schema import Config
from verl_like.plan import job_choices, stages
from verl_like.plan.choices import ROLLOUT_FRAC
from verl_like.plan.devices import DEVICES, GIB
from verl_like.plan.run_plan import RunPlan, plan_of, shapes_of
from verl_like.plan.stages import Location


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_for(written(tmp_path / "7b", QWEN2_7B))


def planned(config: Config, ranks: int = 8, device: str = "H100") -> RunPlan:
    place = replace(h100s(ranks), device=DEVICES[device])
    return plan_of(config, shapes_of(config), place)


def test_engines_take_what_the_models_leave_free(config: Config) -> None:
    plan = planned(config)
    share = plan.config.rollout.memory_share
    assert share == 0.76, "of 79.6 GiB, 10.6 GiB are weights and moments"
    total = plan.location.device.memory_gib * GIB
    assert ROLLOUT_FRAC - 0.01 <= plan.bytes_in("rollout") / total <= ROLLOUT_FRAC
    config.actor.optim.offload = True
    assert planned(config).config.rollout.memory_share > share
    config.cluster.placement = {"trainer": 4, "rollout": 4}
    assert planned(config).config.rollout.memory_share == 0.88
    config.rollout.gpu_memory_utilization = "0.3"
    assert planned(config).config.rollout.memory_share == 0.3


def test_an_engine_decodes_as_many_sequences_as_its_cache_holds(config: Config) -> None:
    config.data.train_batch_size = 4096
    assert planned(config).config.rollout.num_seqs == 256, "of 1,024 + 2,048 tokens in 800,000"
    config.data.max_prompt_length, config.data.max_response_length = 256, 1024
    assert planned(config).config.rollout.num_seqs == 1024
    config.rollout.gpu_memory_utilization = "0.5"
    assert planned(config).config.rollout.num_seqs == 512
    config.rollout.gpu_memory_utilization, config.data.train_batch_size = "auto", 256
    assert planned(config).config.rollout.num_seqs == 256, "an engine has 256 rows"
    config.data.train_batch_size, config.rollout.max_num_batched_tokens = 4096, 600
    assert planned(config).config.rollout.num_seqs == 512
    config.rollout.max_num_seqs = "40"
    assert planned(config).config.rollout.num_seqs == 40


def test_more_logits_are_kept_where_a_gpu_has_memory(config: Config) -> None:
    assert planned(config).config.actor.logits_mib == 2048
    assert planned(config, device="L40S").config.actor.logits_mib == 512
    config.actor.log_prob_chunk_mib = "64"
    assert planned(config).config.actor.logits_mib == 64


def test_layers_count_as_fused_only_where_kernels_for_them_are_installed(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer bytes than a run then needs, too few layers would be recomputed."""

    def is_fused() -> bool:
        place = h100s(8)
        return stages.roles_of(config, shapes_of(config), place)[0].sharded.is_fused

    monkeypatch.setattr(stages, "find_spec", lambda name: None)
    assert is_fused(), "this machine plans for others"
    monkeypatch.setattr(stages, "num_gpus", lambda: 8)
    assert not is_fused(), "a machine with GPUs plans for itself"
    monkeypatch.setattr(stages, "find_spec", lambda name: name)
    assert is_fused()
    config.actor.compile_layers = "true"
    assert not is_fused(), "the workers take PyTorch's layers then"
    config.actor.compile_layers = "auto"
    gemma = {"architectures": ["GemmaForCausalLM"], "model_type": "gemma", "head_dim": 128}
    config.model.path = str(written(tmp_path / "gemma", {**QWEN2_7B, **gemma}))
    assert not is_fused(), "Liger's layers are not Gemma's"


def test_without_gpus_nothing_is_chosen(config: Config) -> None:
    cpu = replace(DEVICES["H100"], kind="cpu", name="cpu")
    place = Location(device=cpu, ranks=2, ranks_per_node=2)
    assert plan_of(config, shapes_of(config), place).config is config
    assert (config.rollout.num_seqs, config.rollout.memory_share, config.actor.logits_mib) == (256, 0.5, 512)


@pytest.mark.parametrize("value", ["1.2", "-0.1", "half", "true"])
def test_a_share_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"rollout\.gpu_memory_utilization"):
        compose(None, [f"rollout.gpu_memory_utilization={value}"])


def test_other_jobs_take_the_choices_that_concern_them(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_choices, "location_of", lambda config, is_timed: h100s(8))
    generating = job_choices.for_generation(config)
    assert (generating.rollout.memory_share, generating.rollout.num_seqs) == (0.76, 256)
    # A critic and a reference, which supervised training does not have, would leave less memory.
    config.algorithm.adv_estimator, config.actor.kl_loss_coef = "gae", 0.1
    learning = job_choices.for_given_rows(config, "sft")
    assert int(learning.model.gradient_checkpointing) < 28, "not all layers"
    assert int(planned(config).config.model.gradient_checkpointing) > int(learning.model.gradient_checkpointing)
    assert learning.actor.logits_mib == 2048
    kept = replace(learning, model=config.model, actor=replace(config.actor, log_prob_chunk_mib="auto"))
    assert kept == config, "other options are as they were"
    config.model.gradient_checkpointing = "true"
    assert job_choices.for_given_rows(config, "sft").model.gradient_checkpointing == "true"
    monkeypatch.setattr(job_choices, "location_of", lambda config, is_timed: None)
    assert job_choices.for_given_rows(config, "sft") is config
    assert job_choices.for_generation(config) is config
