"""Environment variables that workers with models have from the start; this module imports nothing that reads them."""

from __future__ import annotations

from verl_like.backends.rollout import cpu_environment, gpu_environment, rollout_environment
from verl_like.config.schema import Config


def worker_environment(config: Config, device: str, *, num_threads: int = 1) -> dict[str, str]:
    """Return the variables that a hybrid worker needs before it imports anything; ``cluster.env`` takes precedence.

    Args:
        num_threads: threads of a worker.
    """
    engine = rollout_environment(config.rollout.backend, device=device, num_threads=num_threads)
    return {**engine, **_deterministic_variables(config, device), **config.cluster.env}


def reward_model_environment(config: Config, device: str) -> dict[str, str]:
    """Return the variables that a worker with only the reward model needs, as above."""
    shared = cpu_environment() if device == "cpu" else gpu_environment()
    return {**shared, **_deterministic_variables(config, device), **config.cluster.env}


def judge_environment(config: Config, device: str) -> dict[str, str]:
    """Return the variables that a judge's worker needs, as above."""
    engine = rollout_environment(config.reward.judge.backend, device=device)
    return {**engine, **_deterministic_variables(config, device), **config.cluster.env}


def _deterministic_variables(config: Config, device: str) -> dict[str, str]:
    """Return the variables by which ``trainer.deterministic`` reaches libraries that read their environment only when
    loaded.
    """
    if not config.trainer.deterministic:
        return {}
    cublas = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if device == "cuda" else {}  # one workspace for each stream
    return {"TORCHINDUCTOR_DETERMINISTIC": "1", **cublas}  # compiled kernels are not chosen by their measured speed
