"""Variables that workers with models have from their first instruction on; imports nothing that looks at them."""

from __future__ import annotations

from verl_like.backends.rollout import cpu_environment, gpu_environment, rollout_environment
from verl_like.config.schema import Config


def worker_environment(config: Config, device: str, *, num_threads: int = 1) -> dict[str, str]:
    """Variables a hybrid worker must have before it imports anything; ``cluster.env`` has the last word.

    Args:
        num_threads: of a worker on CPU.
    """
    engine = rollout_environment(config.rollout.backend, device=device, num_threads=num_threads)
    return {**engine, **_repeating(config, device), **config.cluster.env}


def reward_model_environment(config: Config, device: str) -> dict[str, str]:
    """Variables that a worker with the reward model for itself must have, as above."""
    shared = cpu_environment() if device == "cpu" else gpu_environment()
    return {**shared, **_repeating(config, device), **config.cluster.env}


def judge_environment(config: Config, device: str) -> dict[str, str]:
    """Variables that a judge's worker must have, as above."""
    engine = rollout_environment(config.reward.judge.backend, device=device)
    return {**engine, **_repeating(config, device), **config.cluster.env}


def _repeating(config: Config, device: str) -> dict[str, str]:
    """What ``trainer.deterministic`` asks of libraries that only look at their environment, and only as they load."""
    if not config.trainer.deterministic:
        return {}
    cublas = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if device == "cuda" else {}  # one workspace for each stream
    return {"TORCHINDUCTOR_DETERMINISTIC": "1", **cublas}  # compiled kernels are not chosen by how fast they were
