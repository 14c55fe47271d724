"""The hybrid worker: one process per accelerator that hosts actor, rollout, ref, critic and reward model together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl_like.backends.base import EngineSettings, PolicyEngine, RolloutEngine
from verl_like.backends.rollout import load_backend
from verl_like.backends.sinks import EngineSink
from verl_like.backends.train import TrainBackend, train_backend
from verl_like.config.schema import ActorConfig, CriticConfig, RefConfig
from verl_like.context import current
from verl_like.telemetry.ledger import stage
from verl_like.telemetry.process_usage import Baseline
from verl_like.workers.actor import ActorRole
from verl_like.workers.critic import CriticRole
from verl_like.workers.engine_settings import engine_settings
from verl_like.workers.environment_source import EnvironmentSource
from verl_like.workers.episodes import single_turns
from verl_like.workers.generator import GeneratorRole, build_rollout_engine
from verl_like.workers.matmul_record import agree_on_libraries
from verl_like.workers.ref import RefRole
from verl_like.workers.reward_models.classifier import RewardModelRole, reward_model_engine
from verl_like.workers.scorer import ScorerRole
from verl_like.workers.sender import SenderRole
from verl_like.workers.setup import WorkerSetup, join_process_group, with_local_models
from verl_like.workers.teachers import TeachersRole
from verl_like.workers.transfer import TransferSink


def load_libraries(rollout_backend: str) -> None:
    """Import the libraries of a worker, the slowest part of its start; an empty name imports no backend."""
    if rollout_backend:
        load_backend(rollout_backend)


def build_roles(setup: WorkerSetup) -> dict[str, Any]:
    """Build the roles of this process, by class name; the rollout engine comes first, while the accelerator is
    empty.
    """
    setup = with_local_models(setup)
    store = join_process_group(setup)
    agree_on_libraries(setup)
    config, backend = setup.config, train_backend("fsdp")
    roles: dict[str, Any] = {}
    rollout: RolloutEngine | None = None
    environments: EnvironmentSource | None = None
    if "rollout" in setup.roles and config.environment.is_used:
        decides = setup.rank % config.rollout.tensor_parallel_size == 0
        environments = EnvironmentSource(config, decides=decides)  # loads the user's file while the models are built
    if "rollout" in setup.roles:
        load_backend(config.rollout.backend)  # libraries count towards the memory baseline
    current(Baseline).mark()
    if "rollout" in setup.roles:
        with stage("build/rollout engine"):
            rollout = build_rollout_engine(setup)
            rollout.sleep()  # frees the accelerator for models and checkpoints until the first sync wakes it
    if "actor" in setup.roles:
        with stage("build/actor"):
            settings = _settings(setup, config.actor, config.model.path)
            policy = backend.policy(
                replace(
                    settings,
                    router_replay=config.rollout.router_replay,
                    router_bias_rate=config.actor.router_bias_rate,
                    freeze_router=config.actor.freeze_router,
                    router_aux_loss_coef=config.actor.router_aux_loss_coef,
                )
            )
            roles |= _actor(setup, policy, rollout)
    if rollout is not None:
        roles["GeneratorRole"] = GeneratorRole(
            setup, rollout, store, single_turns if environments is None else environments.episodes
        )
    if "ref" in setup.roles:
        with stage("build/ref"):
            reference = _reference(setup, backend, roles.get("ActorRole"))
            roles[type(reference).__name__] = reference
            if config.algorithm.distillation == "jsd":
                without_adapters = isinstance(reference, RefRole) and reference.without_adapters
                roles["ActorRole"].learn_from(reference.teachers, without_adapters=without_adapters)
    if "critic" in setup.roles:
        with stage("build/critic"):
            roles["CriticRole"] = CriticRole(setup, backend.value(_settings(setup, config.critic, config.critic.path)))
    if "scorer" in setup.roles:
        with stage("build/scorer"):
            roles["ScorerRole"] = ScorerRole(setup, backend.classifier(_settings(setup, config.actor, "")))
    if "reward_model" in setup.roles:
        with stage("build/reward model"):
            roles["RewardModelRole"] = RewardModelRole(setup, reward_model_engine(setup))
    if environments is not None and rollout is not None:
        with stage("build/environment"):
            environments.load(rollout)
    return roles


def _actor(setup: WorkerSetup, policy: PolicyEngine, rollout: RolloutEngine | None) -> dict[str, Any]:
    """Return the actor, which sends its weights to the engine in this process, or to engines in others."""
    if not setup.sends_weights:
        return {"ActorRole": ActorRole(setup, policy, EngineSink(rollout) if rollout is not None else None)}
    sink = TransferSink(bucket_bytes=int(setup.config.rollout.sync_bucket_mib * 2**20))
    return {"ActorRole": ActorRole(setup, policy, sink), "SenderRole": SenderRole(setup, sink)}


def _reference(setup: WorkerSetup, backend: TrainBackend, actor: ActorRole | None) -> RefRole | TeachersRole:
    """Return several teachers, or a reference with its own model, or with the actor's as ``Config.ref_is_actor``
    explains.
    """
    config = setup.config
    if config.ref_is_actor:
        assert actor is not None, "a reference that is the actor is in its workers (checks/pools.py)"
        return RefRole(setup, actor.engine, is_actor=True)

    def engine_of(path: str) -> PolicyEngine:
        settings = _settings(setup, config.ref, path, is_frozen=True)
        return backend.policy(replace(settings, is_averaged=config.algorithm.self_distillation == "ema"))

    if config.ref.teachers:
        return TeachersRole(setup, engine_of)
    policy = None if actor is None else actor.engine
    return RefRole(setup, engine_of(config.ref.path), is_actor=False, policy=policy)


def _settings(
    setup: WorkerSetup, role: ActorConfig | RefConfig | CriticConfig, path: str, *, is_frozen: bool = False
) -> EngineSettings:
    return engine_settings(setup.config, role, path, device=setup.device, samples=setup.generates, is_frozen=is_frozen)
