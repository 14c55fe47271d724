"""Rules on the options that LoRA adapters can be combined with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config, RefConfig

MAX_ENGINE_RANK = 512  # of vLLM 0.32; a test compares it with the installed version


def ref_has_its_own_model(config: Config, gpus: Gpus) -> Iterator[str]:
    names = ("max_tokens_per_micro_batch", "sequence_parallel_size", "fsdp")
    idle = [name for name in names if getattr(config.ref, name) != getattr(RefConfig(), name)]
    if config.ref_is_actor and idle:
        yield (
            f"{' and '.join(f'ref.{name}' for name in idle)} would have no effect: with model.lora.rank="
            f"{config.model.lora.rank} the reference is the actor without its adapters. Set "
            f"{' and '.join(f'actor.{name}' for name in idle)}, or name a separate model in ref.path."
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


LORA_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (ref_has_its_own_model, engine_takes_adapters)
