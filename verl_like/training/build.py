"""Build a run's worker groups and reward pool on its hosts, and end them without leaving anything running."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from verl_like.algorithms.roles import needs
from verl_like.backends.base import OnRunning
from verl_like.backends.rollout import remove_leftovers
from verl_like.checks.pools import ROLLOUT
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.placement import Devices, Placement
from verl_like.controller.worker_group import WorkerGroup
from verl_like.disk import writing
from verl_like.reward.decoding import Decoder
from verl_like.reward.pool import RewardPool
from verl_like.runs.folder import RunFolder
from verl_like.runs.launch import EngineWorkers, LaunchedRun, Launcher, ended_by
from verl_like.runs.scaling import wanted_workers
from verl_like.telemetry.heartbeat import heartbeat_folder
from verl_like.telemetry.process_log import RunLogs
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.startup import Startup
from verl_like.training.environment_reward import environment_reward
from verl_like.training.placement_table import HYBRID, table_of
from verl_like.training.process_metrics import Reporting
from verl_like.training.rewards import Rewards, ScoringModel
from verl_like.workers.engine_members import EngineMembers
from verl_like.workers.engine_pool import EnginePool
from verl_like.workers.environment import judge_environment, reward_model_environment
from verl_like.workers.groups import (
    ActorGroup,
    AdvantageGroup,
    CriticGroup,
    Generator,
    RefGroup,
    RolloutGroup,
    TeachersGroup,
)
from verl_like.workers.reward_models.groups import ColocatedModel, judge, separate_reward_model
from verl_like.workers.setup import WorkerSetup

# What a sync does with running requests, by the choices of rollout.on_sync.
ON_SYNC = {"keep": OnRunning.KEEP, "recompute": OnRunning.RECOMPUTE, "wait": OnRunning.REFUSE}
# Modules that build the roles of models with their own scoring workers.
SCORER_MODULES = {"reward_model": "classifier", "judge": "judge"}


def build_workers(
    hosts: LaunchedRun, config: Config, *, roles: frozenset[str], actor_updates: int = 0, critic_updates: int = 0
) -> WorkerGroup:
    """Start building these roles where the placement table has them; an actor without updates has no optimiser.

    Returns:
        The workers that train.
    """
    engines, table = hosts.engines, table_of(roles, hosts.pools)
    others = f", and {len(engines.groups)} rollout engines in others" if engines is not None else ""
    separate = "".join(f", {name} in others" for name in hosts.others if table.roles_in(name))
    current(Startup).now(
        f"loading models in {hosts.where.workers}: {', '.join(sorted(table.roles_in(HYBRID)))}{others}{separate}"
    )
    for group in engines.groups if engines is not None else ():
        build_engine(hosts, config, group)
    for name, group in {HYBRID: hosts.workers, **hosts.others}.items():
        if not table.roles_in(name):  # a job without this role
            continue

        def setup(rank: int, name: str = name, group: WorkerGroup = group) -> tuple[WorkerSetup]:
            return (
                replace(
                    _setup(hosts, config, rank, group.world_size),
                    roles=table.roles_in(name),
                    actor_updates=actor_updates,
                    critic_updates=critic_updates,
                    generates=ROLLOUT in roles,
                    sends_weights=name == HYBRID and engines is not None,
                ),
            )

        group.build("verl_like.workers.hybrid:build_roles", setup, timeout_s=config.cluster.start_timeout_s)
    return hosts.workers


def build_engine(hosts: LaunchedRun, config: Config, group: WorkerGroup) -> None:
    """Start building a rollout engine in separate workers."""

    def setup(rank: int) -> tuple[WorkerSetup]:
        found = _setup(hosts, config, rank, group.world_size)
        # Ranks of several engines have the same numbers, and vLLM names shared memory after them.
        run_id = f"{hosts.run_id}-{group.name.replace(' ', '-')}"
        return (replace(found, roles=frozenset({ROLLOUT}), run_id=run_id, generates=True),)

    group.build("verl_like.workers.engine_worker:build_roles", setup, timeout_s=config.cluster.start_timeout_s)


def _setup(hosts: LaunchedRun, config: Config, rank: int, world_size: int) -> WorkerSetup:
    return WorkerSetup(
        config=config,
        rank=rank,
        world_size=world_size,
        device=hosts.where.kind,
        num_threads=hosts.where.num_threads,
        run_id=hosts.run_id,
        roles=frozenset(),
    )


@dataclass(frozen=True, slots=True)
class _EngineHosts:
    """Starts further engines during a run, and ends some."""

    hosts: LaunchedRun
    config: Config
    workers: EngineWorkers

    @property
    def num_free(self) -> int:
        each = self.config.rollout.tensor_parallel_size
        if self.hosts.where.kind == "cpu":
            each *= self.hosts.where.threads_per_worker
        return int(ray_calls.free_resources().get("GPU" if self.hosts.where.kind == "cuda" else "CPU", 0) // each)

    def start(self) -> WorkerGroup:
        group = self.workers.start()
        build_engine(self.hosts, self.config, group)
        return group

    def end(self, group: WorkerGroup) -> None:
        self.workers.end(group)


@contextmanager
def generator(hosts: LaunchedRun, config: Config) -> Iterator[Generator]:
    """Give the facade of the engines: those in the workers that train, or those that have separate workers.

    The workers that train are built; the engines may still be under construction.
    """
    assigns_by_queue = config.deals_by_queue(hosts.where.kind)
    if hosts.engines is not None:
        timeout_s = config.cluster.start_timeout_s
        for group in hosts.engines.groups:
            group.wait_built(timeout_s=timeout_s)
        members = EngineMembers(
            _EngineHosts(hosts, config, hosts.engines),
            hosts.engines.groups,
            node=0 if config.cluster.num_nodes == 1 else -1,
            trainer=hosts.workers,
            ranks_per_engine=config.rollout.tensor_parallel_size,
            max_lost=config.rollout.max_replacements,
            start_timeout_s=timeout_s,
        )
        pool = EnginePool(
            members,
            hosts.workers,
            config.rollout,
            on_running=ON_SYNC[config.rollout.on_sync],
            assigns_by_queue=assigns_by_queue,
            wanted_workers=partial(wanted_workers, RunFolder(config).path),
        )
        with ended_by(pool.close):
            yield pool
        return
    yield RolloutGroup(
        hosts.workers,
        config.rollout,
        assigns_by_queue=assigns_by_queue,
        node_of_rank=[node for node, ranks in enumerate(hosts.where.nodes) for _ in ranks],
    )


@contextmanager
def advantage_worker(config: Config, *, run_id: str) -> Iterator[WorkerGroup | None]:
    """Start the process that computes token advantages; give None if advantages follow from scores alone."""
    if not needs(config).advantages_of_tokens:
        yield None
        return
    timeout_s = config.trainer.stage_timeout_s
    group = WorkerGroup(
        "advantages",
        world_size=1,
        placement=None,
        env={"OMP_NUM_THREADS": "1", **config.cluster.env},
        timeout_s=timeout_s,
        heartbeats=str(heartbeat_folder(run_id)),
    )
    with ended_by(group.shut_down):
        factory = "verl_like.workers.advantages:build_roles"
        group.build(factory, lambda rank: (config.algorithm, timeout_s), timeout_s=config.cluster.start_timeout_s)
        yield group


@contextmanager
def scorer_workers(config: Config, name: str, *, where: Devices, run_id: str) -> Iterator[WorkerGroup | None]:
    """Start the workers of the judge or of a reward model that has its own; give None if the run has no such model."""
    model, judge = config.reward.model, config.reward.judge
    if name == "reward_model":
        is_wanted, num_workers = bool(model.path) and model.placement == "own", model.num_workers
        env = reward_model_environment(config, where.kind)
    else:
        is_wanted, num_workers, env = bool(judge.path), judge.num_workers, judge_environment(config, where.kind)
    if not is_wanted:
        yield None
        return
    timeout_s = config.cluster.start_timeout_s
    # CPU workers share the cores, which the hybrid workers have reserved; a GPU belongs to one worker alone.
    placement = Placement(Devices(where.kind, 1, num_workers), timeout_s=timeout_s) if where.kind == "cuda" else None
    group = WorkerGroup(
        name,
        world_size=num_workers,
        placement=placement,
        env=env,
        timeout_s=config.trainer.stage_timeout_s,
        heartbeats=str(heartbeat_folder(run_id)),
    )

    def setup(rank: int) -> tuple[WorkerSetup]:
        return (
            WorkerSetup(
                config=config,
                rank=rank,
                world_size=num_workers,
                device=where.kind,
                run_id=run_id,
                roles=frozenset({name}),
            ),
        )

    with ended_by(
        group.shut_down, *([placement.remove] if placement is not None else []), lambda: remove_leftovers(run_id)
    ):
        group.build(f"verl_like.workers.reward_models.{SCORER_MODULES[name]}:build_roles", setup, timeout_s=timeout_s)
        yield group


@contextmanager
def reward_pool(
    config: Config, tokenizer: PreTrainedTokenizerBase, failures: Path, *, run_id: str
) -> Iterator[RewardPool]:
    """Start the scorers, which load their functions; failed samples are written to the folder ``failures``."""
    with writing(failures):
        failures.mkdir(parents=True, exist_ok=True)
    pool = RewardPool(
        config.scoring,
        Decoder(tokenizer, trust_remote_code=config.model.trust_remote_code),
        failures=failures,
        max_failure_bytes=RecordLimits(config.trainer.max_records_gib).failures,
        env=config.cluster.env,
        timeout_s=config.trainer.stage_timeout_s,
        heartbeats=str(heartbeat_folder(run_id)),
    )
    with ended_by(pool.shut_down):
        yield pool
        pool.settle()


@dataclass(frozen=True, slots=True)
class _Starting:
    """The scorers while they start."""

    config: Config
    pool: RewardPool
    model: WorkerGroup | None
    judge: WorkerGroup | None

    def ready(self, hybrid: WorkerGroup) -> Rewards:
        """Return the rewards once all scorers and the hybrid workers have started.

        The functions come first: one that cannot be loaded ends the run before a model is loaded.
        """
        reward, timeout_s = self.config.reward, self.config.cluster.start_timeout_s
        stage_timeout_s = self.config.trainer.stage_timeout_s
        self.pool.wait_ready(timeout_s=timeout_s)
        hybrid.wait_built(timeout_s=timeout_s)
        models: list[ScoringModel] = []
        if needs(self.config).reward_model:
            models.append(ColocatedModel(hybrid, name="model", weight=reward.model.weight))
        if self.model is not None:
            self.model.wait_built(timeout_s=timeout_s)
            models.append(separate_reward_model(self.model, weight=reward.model.weight, timeout_s=stage_timeout_s))
        if self.judge is not None:
            self.judge.wait_built(timeout_s=timeout_s)
            tensor_parallel_size = reward.judge.tensor_parallel_size
            models.append(
                judge(
                    self.judge,
                    weight=reward.judge.weight,
                    tensor_parallel_size=tensor_parallel_size,
                    timeout_s=stage_timeout_s,
                )
            )
        if (of_environment := environment_reward(self.config)) is not None:
            models.append(of_environment)
        return Rewards(self.pool, models, reward)


@contextmanager
def scorers(
    hosts: LaunchedRun, config: Config, tokenizer: PreTrainedTokenizerBase, failures: Path
) -> Iterator[_Starting]:
    """Start everything that scores."""
    where, run_id = hosts.where, hosts.run_id
    with (
        reward_pool(config, tokenizer, failures, run_id=run_id) as pool,
        scorer_workers(config, "reward_model", where=where, run_id=run_id) as model,
        scorer_workers(config, "judge", where=where, run_id=run_id) as judge,
    ):
        yield _Starting(config, pool, model, judge)


@dataclass(frozen=True, slots=True)
class Stack:
    """The parts that a trainer calls.

    Args:
        devices: of the workers that train.
        separate: the number of workers of each model that is not in these.
    """

    devices: Devices
    separate: Mapping[str, int]
    actor: ActorGroup
    rollout: Generator
    critic: CriticGroup | None
    ref: RefGroup | None
    advantages: AdvantageGroup | None
    rewards: Rewards
    processes: tuple[Reporting, ...]


def reference(config: Config, group: WorkerGroup) -> RefGroup:
    """Return the interface of the reference's workers."""
    return TeachersGroup(group) if config.ref.teachers else RefGroup(group)


@contextmanager
def stack(
    config: Config,
    tokenizer: PreTrainedTokenizerBase,
    folder: RunFolder,
    *,
    roles: frozenset[str],
    actor_updates: int,
    critic_updates: int,
) -> Iterator[Stack]:
    """Start the parts of a reinforcement-learning run.

    Everything starts in parallel; a reward function that cannot be loaded ends the run before a model is loaded.
    """
    timeout_s = config.cluster.start_timeout_s
    with (
        current(RunLogs).kept(folder.logs),
        current(Launcher).launched(config, generates=True) as hosts,
        scorers(hosts, config, tokenizer, folder.samples) as starting,
    ):
        workers = build_workers(hosts, config, roles=roles, actor_updates=actor_updates, critic_updates=critic_updates)
        table, groups = table_of(roles, hosts.pools), {HYBRID: workers, **hosts.others}
        with advantage_worker(config, run_id=hosts.run_id) as advantages:
            rewards = starting.ready(workers)
            for group in hosts.others.values():
                group.wait_built(timeout_s=timeout_s)
            if advantages is not None:
                advantages.wait_built(timeout_s=timeout_s)
            with generator(hosts, config) as rollout:
                yield Stack(
                    devices=hosts.where,
                    separate={name: group.world_size for name, group in hosts.others.items()},
                    actor=ActorGroup(table.find("actor", groups)),
                    rollout=rollout,
                    critic=CriticGroup(table.find("critic", groups)) if table.hosts("critic") else None,
                    ref=reference(config, table.find("ref", groups)) if table.hosts("ref") else None,
                    advantages=None if advantages is None else AdvantageGroup(advantages),
                    rewards=rewards,
                    processes=tuple(
                        group
                        for group in (
                            *groups.values(),
                            rollout if isinstance(rollout, EnginePool) else None,
                            advantages,
                            starting.pool,
                            starting.model,
                            starting.judge,
                        )
                        if group is not None
                    ),
                )
