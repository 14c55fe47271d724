"""What a worker with models is told when it is built, and the process group it joins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from verl_like.backends.rollout import cpu_environment, rollout_environment
from verl_like.config.schema import Config
from verl_like.single_controller import rendezvous

SEQUENCE = ("prompt_ids", "response_ids", "response_mask")  # what every forward pass reads


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSetup:
    """Everything a worker needs besides its environment."""

    config: Config
    rank: int
    world_size: int
    device: str  # "cpu" or "cuda"
    run_id: str
    roles: frozenset[str]  # of "actor", "rollout", "ref", "critic", "reward_model", "judge"
    # Optimiser updates of the whole run, for the schedules; an actor without any does not learn.
    actor_updates: int = 0
    critic_updates: int = 0


def worker_environment(config: Config, device: str) -> dict[str, str]:
    """Variables a hybrid worker must have before it imports anything; ``cluster.env`` has the last word."""
    return {**rollout_environment(config.rollout.backend, device=device), **config.cluster.env}


def reward_model_environment(config: Config, device: str) -> dict[str, str]:
    """Variables that a worker with the reward model for itself must have, as above."""
    return {**(cpu_environment() if device == "cpu" else {}), **config.cluster.env}


def judge_environment(config: Config, device: str) -> dict[str, str]:
    """Variables that a judge's worker must have, as above."""
    return {**rollout_environment(config.reward.judge.backend, device=device), **config.cluster.env}


def join_process_group(setup: WorkerSetup) -> None:
    """Rendezvous at the address that rank 0 holds; collectives get the stage deadline."""
    backend = "cpu:gloo,cuda:nccl" if setup.device == "cuda" else "gloo"
    if setup.device == "cuda":
        torch.cuda.set_device(0)  # one visible GPU per worker
    else:
        torch.set_num_threads(1)
    timeout_s = setup.config.trainer.stage_timeout_s
    dist.init_process_group(
        backend,
        store=rendezvous.store(rank=setup.rank, world_size=setup.world_size, timeout_s=timeout_s),
        rank=setup.rank,
        world_size=setup.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
