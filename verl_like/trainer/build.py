"""Building a run: cluster, placement, worker groups, reward pool; and ending it without leaving anything behind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verl_like.backends.rollout import remove_leftovers
from verl_like.config.checks import check_devices
from verl_like.config.schema import Config
from verl_like.reward.pool import RewardPool
from verl_like.single_controller.placement import Devices, Placement, devices, ray_cluster
from verl_like.single_controller.worker_group import WorkerGroup
from verl_like.trainer.run_folder import RunFolder
from verl_like.workers.groups import ActorGroup, AdvantageGroup, CriticGroup, RefGroup, RolloutGroup
from verl_like.workers.setup import WorkerSetup, worker_environment


@contextmanager
def cluster(config: Config) -> Iterator[tuple[Devices, str]]:
    """A Ray cluster, joined or started, whose devices fit the configuration; and the id in every name the run shares."""
    run_id = uuid.uuid4().hex[:8]
    with ray_cluster(config.cluster, run_id):
        where = devices(config.cluster)
        check_devices(config, world_size=where.world_size)
        yield where, run_id


@contextmanager
def hybrid_workers(
    config: Config, *, where: Devices, run_id: str, roles: frozenset[str], actor_updates: int, critic_updates: int = 0
) -> Iterator[WorkerGroup]:
    """One hybrid worker per device, being built; killed at the end."""
    placement = Placement(where, timeout_s=config.cluster.start_timeout_s)
    group = WorkerGroup("worker", world_size=where.world_size, placement=placement, env=worker_environment(config, where.kind),
                        timeout_s=config.trainer.stage_timeout_s)

    def setup(rank: int) -> tuple[WorkerSetup]:
        return (WorkerSetup(config=config, rank=rank, world_size=where.world_size, device=where.kind, run_id=run_id,
                            roles=roles, actor_updates=actor_updates, critic_updates=critic_updates),)

    try:
        group.build("verl_like.workers.hybrid:build_roles", setup, timeout_s=config.cluster.start_timeout_s)
        yield group
    finally:
        group.shut_down()
        placement.remove()
        remove_leftovers(run_id)


@contextmanager
def advantage_worker(config: Config) -> Iterator[WorkerGroup]:
    """The light process that computes advantages, being built."""
    timeout_s = config.trainer.stage_timeout_s
    group = WorkerGroup("advantages", world_size=1, placement=None, env={"OMP_NUM_THREADS": "1", **config.cluster.env}, timeout_s=timeout_s)
    try:
        factory = "verl_like.workers.advantages:build_roles"
        group.build(factory, lambda rank: (config.algorithm, timeout_s), timeout_s=config.cluster.start_timeout_s)
        yield group
    finally:
        group.shut_down()


@contextmanager
def reward_pool(config: Config, failures: Path) -> Iterator[RewardPool]:
    """Scorers, loading their function; failed samples are written into the folder ``failures``."""
    failures.mkdir(parents=True, exist_ok=True)
    pool = RewardPool(
        config.reward, tokenizer_path=config.model.tokenizer, trust_remote_code=config.model.trust_remote_code,
        failures_path=failures / "reward_failures.jsonl", env=config.cluster.env, timeout_s=config.trainer.stage_timeout_s,
    )
    try:
        yield pool
    finally:
        pool.shut_down()


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything a trainer calls."""

    devices: Devices
    actor: ActorGroup
    rollout: RolloutGroup
    critic: CriticGroup | None
    ref: RefGroup | None
    advantages: AdvantageGroup
    rewards: RewardPool


@contextmanager
def stack(config: Config, folder: RunFolder, *, roles: frozenset[str], actor_updates: int, critic_updates: int) -> Iterator[Stack]:
    """The parts of a reinforcement-learning run.

    Everything starts side by side; a reward function that does not load ends the run before a model has.
    """
    timeout_s = config.cluster.start_timeout_s
    with (
        cluster(config) as (where, run_id),
        reward_pool(config, folder.samples) as rewards,
        hybrid_workers(config, where=where, run_id=run_id, roles=roles, actor_updates=actor_updates,
                       critic_updates=critic_updates) as workers,
        advantage_worker(config) as advantages,
    ):
        rewards.wait_ready(timeout_s=timeout_s)
        workers.wait_built(timeout_s=timeout_s)
        advantages.wait_built(timeout_s=timeout_s)
        yield Stack(
            devices=where,
            actor=ActorGroup(workers),
            rollout=RolloutGroup(workers, tensor_parallel_size=config.rollout.tensor_parallel_size),
            critic=CriticGroup(workers) if "critic" in roles else None,
            ref=RefGroup(workers) if "ref" in roles else None,
            advantages=AdvantageGroup(advantages),
            rewards=rewards,
        )
