"""What LoRA adapters do not go together with is refused, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from verl_like.checks.gpus import Gpus
from verl_like.checks.lora import LORA_RULES, MAX_ENGINE_RANK
from verl_like.config.schema import Config


@pytest.fixture
def config() -> Config:
    """With adapters, which go together with everything else by default."""
    sound = Config()
    sound.model.lora.rank = 8
    assert problems(sound) == []
    return sound


def problems(config: Config) -> list[str]:
    return [problem for rule in LORA_RULES for problem in rule(config, Gpus(0))]


def test_options_of_a_reference_that_is_the_actor_are_refused(config: Config) -> None:
    config.ref.max_tokens_per_micro_batch, config.ref.fsdp.offload_params = "512", True
    (problem,) = problems(config)
    assert problem.startswith(
        "ref.max_tokens_per_micro_batch and ref.fsdp would have no effect: with model.lora.rank=8"
    )
    assert problem.endswith("name a separate model in ref.path.")
    config.ref.path = "another"
    assert problems(config) == []
    config.ref.path, config.ref.teachers = "", {"math": "a", "code": "b"}
    assert problems(config) == [] and not config.ref_is_actor
    config.ref.path, config.model.lora.rank = "", 0
    assert problems(config) == []


def test_an_engine_without_an_adapter_to_take_is_refused(config: Config) -> None:
    config.rollout.lora = "adapter"
    assert problems(config) == []
    config.model.lora.rank = 0
    (problem,) = problems(config)
    assert "model.lora.rank is 0, so there is no adapter" in problem


def test_an_engine_that_takes_no_adapters_is_refused(config: Config) -> None:
    config.rollout.lora, config.rollout.backend = "adapter", "hf"
    (problem,) = problems(config)
    assert "only vLLM supports, but rollout.backend is hf. Set rollout.lora=merged." in problem


def test_adapters_of_a_mixture_without_a_gpu_are_refused(config: Config, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_moe", "num_experts": 4}')
    config.model.path, config.rollout.lora = str(tmp_path), "adapter"
    (problem,) = problems(config)
    assert problem == (
        f"rollout.lora is adapter, but {tmp_path} is a mixture of experts, whose layers vLLM computes with adapters on "
        "GPUs alone. Set rollout.lora=merged."
    )
    config.cluster.device = "cuda"
    assert problems(config) == []


def test_a_rank_that_no_engine_takes_is_refused(config: Config) -> None:
    config.rollout.lora, config.model.lora.rank = "adapter", MAX_ENGINE_RANK + 1
    (problem,) = problems(config)
    assert f"model.lora.rank is {MAX_ENGINE_RANK + 1}, but vLLM supports adapters of rank {MAX_ENGINE_RANK}" in problem
    config.rollout.lora = "merged"
    assert problems(config) == []


def test_the_highest_rank_is_that_of_the_installed_vllm() -> None:
    lora = pytest.importorskip("vllm.config.lora")
    assert max(get_args(lora.MaxLoRARanks)) == MAX_ENGINE_RANK
