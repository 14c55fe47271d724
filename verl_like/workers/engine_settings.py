"""The settings of a training engine, from a run's configuration."""

from __future__ import annotations

from dataclasses import replace

import torch

from verl_like.backends.base import EngineSettings
from verl_like.config.schema import ActorConfig, Config, CriticConfig, RefConfig
from verl_like.config.schema.fields import is_on


def engine_settings(
    config: Config,
    role: ActorConfig | RefConfig | CriticConfig,
    path: str = "",
    *,
    device: str,
    samples: bool = True,
    is_frozen: bool = False,
) -> EngineSettings:
    """Return the settings of a role's model.

    Args:
        path: of the model; empty for the policy's.
        samples: whether the run has rollout engines; supervised training samples nothing and learns at temperature 1.
    """
    kernels, on_gpu = config.model.kernels, device == "cuda"
    if kernels == "auto" and (not on_gpu or config.actor.compile_layers == "true"):
        kernels = "torch"
    return EngineSettings(
        model=replace(config.model, path=path or config.model.path, kernels=kernels),
        fsdp=role.fsdp,
        device=torch.device(device),
        max_tokens_per_micro_batch=role.max_tokens_per_micro_batch,
        is_frozen=is_frozen,
        temperature=config.rollout.temperature if samples else 1.0,
        log_prob_chunk_mib=config.actor.logits_mib,
        use_torch_compile=is_on(config.actor.use_torch_compile, auto=on_gpu),
        compile_layers=is_on(config.actor.compile_layers, auto=on_gpu and config.model.remove_padding),
        rollout_dtype=config.rollout.dtype,
        sync_bucket_mib=config.rollout.sync_bucket_mib,
        balance_by=config.trainer.balance_by,
        seed=config.trainer.seed,
        sequence_parallel_size=role.sequence_parallel_size,
        timeout_s=config.trainer.stage_timeout_s,
    )
