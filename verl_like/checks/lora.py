"""Rules on the options that LoRA adapters can be combined with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.checks.experts import num_experts
from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config, RefConfig

MAX_ENGINE_RANK = 512  # of vLLM 0.32; a test compares it with the installed version


def ref_has_its_own_model(config: Config, gpus: Gpus) -> Iterator[str]:
    names = ("max_tokens_per_micro_batch", "sequence_parallel_size", "fsdp")
    idle = [name for name in names if getattr(config.ref, name) != getattr(RefConfig(), name)]
    if not (config.ref_is_actor and idle):
        return
    found, kind, otherwise = (
        f"model.lora.rank={config.model.lora.rank}",
        "the actor without its adapters",
        ", or name a separate model in ref.path",
    )
    if config.algorithm.self_distillation == "self":
        found, kind, otherwise = "algorithm.distill_teacher=self", "the actor", ""
    ref, actor = (" and ".join(f"{section}.{name}" for name in idle) for section in ("ref", "actor"))
    yield (
        f"{ref} would have no effect: with {found} the reference is {kind}. Leave {ref} at the default and set "
        f"{actor}{otherwise}."
    )


def engine_takes_adapters(config: Config, gpus: Gpus) -> Iterator[str]:
    rank = config.model.lora.rank
    if config.rollout.lora == "merged":
        return
    if not rank:
        yield (
            "rollout.lora is adapter, but model.lora.rank is 0, so there is no adapter. Set model.lora.rank=8, or "
            "rollout.lora=merged."
        )
    elif config.rollout.backend != "vllm":
        yield (
            f"rollout.lora is adapter, which only vLLM supports, but rollout.backend is {config.rollout.backend}. Set "
            "rollout.lora=merged."
        )
    elif rank > MAX_ENGINE_RANK:
        yield (
            f"model.lora.rank is {rank}, but vLLM supports adapters of rank {MAX_ENGINE_RANK} at most. Lower it, or "
            "set rollout.lora=merged."
        )
    elif gpus.runs_on_gpu(config) is False and num_experts(config, config.model.path):
        yield (
            f"rollout.lora is adapter, but {config.model.path} is a mixture of experts, whose layers vLLM computes "
            "with adapters on GPUs alone. Set rollout.lora=merged."
        )


LORA_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (ref_has_its_own_model, engine_takes_adapters)
