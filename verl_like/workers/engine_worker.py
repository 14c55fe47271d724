"""The worker of an engine in separate processes: nothing trains in it."""

from __future__ import annotations

from typing import Any

from verl_like.backends.rollout import load_backend
from verl_like.context import current
from verl_like.telemetry.ledger import stage
from verl_like.telemetry.process_usage import Baseline
from verl_like.workers.environment_source import EnvironmentSource
from verl_like.workers.episodes import single_turns
from verl_like.workers.generator import build_rollout_engine
from verl_like.workers.served_engine import ServedEngineRole
from verl_like.workers.setup import WorkerSetup, join_process_group, with_local_models


def build_roles(setup: WorkerSetup) -> dict[str, Any]:
    """Build this rank of an engine, whose ranks are the whole process group."""
    setup = with_local_models(setup)
    join_process_group(setup)
    config = setup.config
    environments: EnvironmentSource | None = None
    if config.environment.is_used:
        environments = EnvironmentSource(config, decides=setup.rank == 0)  # loads the user's file meanwhile
    load_backend(config.rollout.backend)  # libraries count towards the memory baseline
    current(Baseline).mark()
    with stage("build/rollout engine"):
        engine = build_rollout_engine(setup)
    episodes = single_turns
    if environments is not None:
        with stage("build/environment"):
            environments.load(engine)
        episodes = environments.episodes
    return {"ServedEngineRole": ServedEngineRole(setup, engine, episodes)}
