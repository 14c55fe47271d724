"""The configuration with which a worker with models is built, and the process group that it joins."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from verl_like.config.schema import Config
from verl_like.controller import rendezvous
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import CANDIDATES, EXPERTS, FEATURES, RESPONSE_FEATURES
from verl_like.remote_models import local_path

log = logging.getLogger(__name__)
SEQUENCE = ("prompt_ids", "response_ids", "response_mask")  # columns that every forward pass reads


def sampled_sequence(config: Config, rows: RemoteRows) -> tuple[str, ...]:
    """Return the columns that a forward pass over sampled responses reads, if it computes their log-probs."""
    rollout = config.rollout
    features = tuple(name for name in (RESPONSE_FEATURES, FEATURES) if name in rows.columns)[:1]
    return (*SEQUENCE, *CANDIDATES * rollout.keep_sampling_mask, *(EXPERTS,) * rollout.router_replay, *features)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSetup:
    """Everything that a worker needs in addition to its environment."""

    config: Config
    rank: int
    world_size: int
    device: str  # "cpu" or "cuda"
    run_id: str
    roles: frozenset[str]  # some of "actor", "rollout", "ref", "critic", "reward_model", "judge"
    # Optimiser updates of the whole run, for the schedules; an actor with 0 does not learn.
    actor_updates: int = 0
    critic_updates: int = 0
    num_threads: int = 1
    generates: bool = False  # whether the run has rollout engines, in these workers or in others
    sends_weights: bool = False  # the actor's, to engines in other processes


def with_local_models(setup: WorkerSetup) -> WorkerSetup:
    """Return the setup with local folders for models at URLs, which are downloaded if needed."""
    config = setup.config
    model = replace(
        config.model, path=local_path(config.model.path), tokenizer_path=local_path(config.model.tokenizer_path)
    )
    reward = replace(
        config.reward,
        model=replace(config.reward.model, path=local_path(config.reward.model.path)),
        judge=replace(config.reward.judge, path=local_path(config.reward.judge.path)),
    )
    return replace(
        setup,
        config=replace(
            config,
            model=model,
            ref=replace(
                config.ref,
                path=local_path(config.ref.path),
                teachers={name: local_path(path) for name, path in config.ref.teachers.items()},
            ),
            critic=replace(config.critic, path=local_path(config.critic.path)),
            reward=reward,
        ),
    )


def use_deterministic_operations() -> None:
    """Make torch use bitwise reproducible operations; each operation that has none logs one warning per run."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Uninitialised memory is never read here; filling it would cost a pass over every new tensor.
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (a property of the module)
    shown = warnings.showwarning

    def show(message: Warning | str, *where: Any, **options: Any) -> None:
        if "does not have a deterministic implementation" in str(message):
            log.warning("trainer.deterministic: %s", str(message).partition(", but you set")[0])
        else:
            shown(message, *where, **options)

    warnings.showwarning = show


def check_one_gpu(num_visible: int) -> None:
    """Check that this process sees only its own GPU; otherwise all ranks of a node would use the first.

    Raises:
        RuntimeError: if it sees none, or several.
    """
    if num_visible != 1:
        raise RuntimeError(
            f"this worker sees {num_visible} GPUs, expected exactly the one that Ray assigned to it. Start Ray without "
            f"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES, and leave CUDA_VISIBLE_DEVICES out of cluster.env."
        )


def join_process_group(setup: WorkerSetup) -> Store:
    """Join the process group at rank 0's address and return its store; collectives get the stage timeout."""
    if setup.config.trainer.deterministic:
        use_deterministic_operations()
    backend = "cpu:gloo,cuda:nccl" if setup.device == "cuda" else "gloo"
    if setup.device == "cuda":
        check_one_gpu(torch.cuda.device_count())
        torch.cuda.set_device(0)
    else:
        torch.set_num_threads(setup.num_threads)
    timeout_s = setup.config.trainer.stage_timeout_s
    store = rendezvous.store(rank=setup.rank, world_size=setup.world_size, timeout_s=timeout_s)
    dist.init_process_group(
        backend, store=store, rank=setup.rank, world_size=setup.world_size, timeout=timedelta(seconds=timeout_s)
    )
    return store
