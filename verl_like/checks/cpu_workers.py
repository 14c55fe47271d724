"""Hybrid workers of a machine without GPUs, and threads of each. Nothing here imports torch."""

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

# Of all models, for more than two workers: each steps its own replica of all parameters, and there is a sum of all
# gradients. With 28M one worker of two threads was faster than two of one (docs/scale.md).
MAX_PARAMETERS = 10_000_000
# Of such a worker beyond its engine's cache: libraries take 0.8, the rest 0.4 with 1M and 2.5 with 30M (docs/scale.md).
WORKER_GIB = 3.0
DRIVER_GIB = 2.0  # and scorers


def shares_of(config: Config, cores: int) -> Shares:
    """Hybrid workers on CPU of each node, with so many cores that this run may use.

    The same on a machine at every start. In a Ray that is joined, cores are shared with others: it has two workers of
    one thread, unless the configuration says more.
    """
    cluster = config.cluster
    if cluster.address:
        workers = cluster.workers_per_node or min(USUAL_WORKERS, cores // max(cluster.threads_per_worker, 1))
        return Shares(max(workers, 1), max(cluster.threads_per_worker, 1))
    scorers = sum(own_gpus(config).values()) + config.reward.num_workers - 1  # the first shares with the driver
    return shared_out(
        cores,
        kept=scorers,
        most=most_workers(config, memory_gib()),
        dealt=(config.data.train_batch_size, config.actor.mini_batch_size, config.critic.mini_batch_size),
        multiple_of=config.rollout.tensor_parallel_size,
        workers=cluster.workers_per_node,
        threads=cluster.threads_per_worker,
    )


def most_workers(config: Config, memory: float) -> int:
    """How many small models a machine of so many GiB holds; 0 where models are large, or nobody knows how large."""
    sizes = {path: num_parameters(path) for path in _models(config)}
    if 0 in sizes.values() or sum(sizes.values()) > MAX_PARAMETERS:
        return 0
    room = memory - DRIVER_GIB - config.cluster.object_store_memory_gib
    return max(int(room / (WORKER_GIB + config.rollout.kv_cache_memory_gib)), 0)


def _models(config: Config) -> list[str]:
    reward = config.reward
    named = (config.model.path, config.ref.path, config.critic.path, reward.model.path, reward.judge.path)
    return [path for path in named if path]


def num_parameters(path: str) -> int:
    """Parameters in a folder's safetensors files; 0 where it has none, and for a hub name: its files may come later."""
    if not is_local_path(path):
        return 0
    files = Path(path).expanduser().glob("model*.safetensors")
    return sum(math.prod(tensor["shape"]) for file in files for tensor in _tensors(file))


def _tensors(file: Path) -> Iterable[dict[str, Any]]:
    """What the head of a file says of its tensors; none, where it is not whole: the rules on models report it."""
    try:
        return tensors(file).values()
    except (OSError, ValueError):
        return []
