"""Numbers of hybrid workers and of their threads on a machine without GPUs. This module does not import torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verl_like.checks.paths import is_local_path
from verl_like.checks.reward import own_gpus
from verl_like.checks.weights import tensors
from verl_like.config.schema import Config
from verl_like.machine.cores import USUAL_WORKERS, Shares, shared_out
from verl_like.machine.probes import memory_gib

# Parameters of all models up to which more than two workers are used: each worker updates its own replica, and all
# gradients are summed. With 28M, one worker of two threads was faster than two of one (docs/scale.md).
MAX_PARAMETERS = 10_000_000
# Memory of such a worker without its engine's cache: 0.8 for libraries, 0.4 (1M) to 2.5 (30M) more (docs/scale.md).
WORKER_GIB = 3.0
DRIVER_GIB = 2.0  # includes scorers


def shares_of(config: Config, cores: int) -> Shares:
    """Return the numbers of hybrid workers and threads on each CPU node, of which the run may use ``cores`` cores.

    The result is the same at every start on a machine. A joined Ray cluster shares its cores with other jobs, so the
    default there is two workers of one thread.
    """
    cluster = config.cluster
    if cluster.address:
        workers = cluster.wanted_per_node or min(USUAL_WORKERS, cores // max(cluster.threads_per_worker, 1))
        return Shares(max(workers, 1), max(cluster.threads_per_worker, 1))
    scorers = sum(own_gpus(config).values()) + config.reward.num_workers - 1  # the first shares the driver's core
    return shared_out(
        cores,
        kept=scorers,
        most=most_workers(config, memory_gib()),
        dealt=(config.data.train_batch_size, config.actor.mini_batch_size, config.critic.mini_batch_size),
        multiple_of=config.rollout.tensor_parallel_size,
        workers=cluster.wanted_per_node,
        threads=cluster.threads_per_worker,
    )


def most_workers(config: Config, memory: float) -> int:
    """Return how many workers with small models fit into ``memory`` GiB; 0 if models are large or of unknown size."""
    sizes = {path: num_parameters(path) for path in _models(config)}
    if 0 in sizes.values() or sum(sizes.values()) > MAX_PARAMETERS:
        return 0
    free_gib = memory - DRIVER_GIB - config.cluster.object_store_memory_gib
    return max(int(free_gib / (WORKER_GIB + config.rollout.kv_cache_memory_gib)), 0)


def _models(config: Config) -> list[str]:
    reward = config.reward
    references = (config.ref.path, *config.ref.teacher_models, config.dpo.ref_path)
    named = (config.model.path, *references, config.critic.path, reward.model.path, reward.judge.path)
    return [path for path in named if path]


def num_parameters(path: str) -> int:
    """Return the number of parameters in a folder's safetensors files.

    It is 0 for a folder without such files, and for a hub name, whose files may be downloaded later.
    """
    if not is_local_path(path):
        return 0
    files = Path(path).expanduser().glob("model*.safetensors")
    return sum(math.prod(tensor["shape"]) for file in files for tensor in _tensors(file))


def _tensors(file: Path) -> Iterable[dict[str, Any]]:
    """Return the tensor entries in a file's header; none if it is damaged, which the rules on models report."""
    try:
        return tensors(file).values()
    except (OSError, ValueError):
        return []
