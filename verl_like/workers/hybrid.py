"""The hybrid worker: one process per accelerator that hosts actor, rollout, ref,
critic and reward model side by side.
"""

from __future__ import annotations

from typing import Any

import torch

from verl_like.backends.base import TrainEngine
from verl_like.backends.train import train_engine
from verl_like.config.schema import FsdpConfig, OptimConfig
from verl_like.workers.actor import ActorRole
from verl_like.workers.critic import CriticRole
from verl_like.workers.ref import RefRole
from verl_like.workers.reward_models.classifier import RewardModelRole, reward_model_engine
from verl_like.workers.rollout import RolloutRole, build_rollout_engine
from verl_like.workers.setup import WorkerSetup, join_process_group


def build_roles(setup: WorkerSetup) -> dict[str, Any]:
    """The roles of this process by class name; the engine comes first, while the accelerator is empty."""
    join_process_group(setup)
    config = setup.config
    roles: dict[str, Any] = {}
    engine = build_rollout_engine(setup) if "rollout" in setup.roles else None
    if "actor" in setup.roles:
        train_engine = _train_engine(
            setup,
            "policy",
            config.model.path,
            config.actor.max_tokens_per_micro_batch,
            config.actor.fsdp,
            config.actor.optim,
            setup.actor_updates,
        )
        roles["ActorRole"] = ActorRole(setup, train_engine)
        if engine is not None:
            roles["RolloutRole"] = RolloutRole(setup, engine, roles["ActorRole"])
    if "ref" in setup.roles:
        ref = _train_engine(
            setup,
            "frozen",
            config.ref.path or config.model.path,
            config.ref.max_tokens_per_micro_batch,
            config.ref.fsdp,
            None,
            0,
        )
        roles["RefRole"] = RefRole(setup, ref)
    if "critic" in setup.roles:
        critic = _train_engine(
            setup,
            "value",
            config.critic.path or config.model.path,
            config.critic.max_tokens_per_micro_batch,
            config.critic.fsdp,
            config.critic.optim,
            setup.critic_updates,
        )
        roles["CriticRole"] = CriticRole(setup, critic)
    if "reward_model" in setup.roles:
        roles["RewardModelRole"] = RewardModelRole(setup, reward_model_engine(setup))
    return roles


def _train_engine(
    setup: WorkerSetup,
    kind: str,
    path: str,
    max_tokens: int,
    fsdp: FsdpConfig,
    optim: OptimConfig | None,
    total_updates: int,
) -> TrainEngine:
    config = setup.config
    return train_engine(
        "fsdp",
        kind=kind,
        model_path=path,
        model=config.model,
        fsdp=fsdp,
        optim=optim,
        total_updates=total_updates,
        max_tokens_per_micro_batch=max_tokens,
        max_response_tokens=config.data.max_response_length,
        # Supervised training samples nothing, so it learns at temperature 1.
        temperature=config.rollout.temperature if "rollout" in setup.roles else 1.0,
        log_prob_chunk_tokens=config.actor.log_prob_chunk_tokens,
        use_torch_compile=config.actor.use_torch_compile and kind == "policy",
        rollout_dtype=config.rollout.dtype,
        sync_bucket_mib=config.rollout.sync_bucket_mib,
        balance_by=config.trainer.balance_by,
        device=torch.device(setup.device),
        seed=config.trainer.seed,
    )
