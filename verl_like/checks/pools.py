"""Pools of workers: how many each has, and what cannot work. This module does not import torch."""

from __future__ import annotations

from collections.abc import Iterator

from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config

TRAINER, ROLLOUT = "trainer", "rollout"
POOLS = (TRAINER, ROLLOUT)


def pool_sizes(config: Config, num_workers: int) -> dict[str, int]:
    """Return the workers of each pool, of ``num_workers`` in all; all of them are the trainer's without a placement."""
    placement = config.cluster.placement
    if not placement:
        return {TRAINER: num_workers}
    return {name: int(size) if size >= 1 else round(size * num_workers) for name, size in placement.items()}


def trainer_ranks(config: Config, num_workers: int) -> int:
    """Return the number of workers that train, of ``num_workers`` in all."""
    return pool_sizes(config, num_workers).get(TRAINER, num_workers)


def rollout_ranks(config: Config, num_workers: int) -> int:
    """Return the number of workers that generate: the rollout's own, or all."""
    sizes = pool_sizes(config, num_workers)
    return sizes.get(ROLLOUT, num_workers)


def pools_are_complete(config: Config, gpus: Gpus) -> Iterator[str]:
    placement = config.cluster.placement
    if not placement:
        return
    expected = "Set e.g. cluster.placement={trainer: 4, rollout: 4}, or leave it empty to share every worker."
    if unknown := sorted(placement.keys() - set(POOLS)):
        yield f"cluster.placement names {', '.join(unknown)}; expected {' and '.join(POOLS)}. {expected}"
    if missing := sorted(set(POOLS) - placement.keys()):
        yield f"cluster.placement has no pool {' and '.join(missing)}; expected {' and '.join(POOLS)}. {expected}"


def pools_fit_the_workers(config: Config, gpus: Gpus) -> Iterator[str]:
    per_node = gpus.ranks_per_node(config)
    if per_node and not any(pools_are_complete(config, gpus)):
        yield from pools_problem(config, num_workers=per_node * config.cluster.num_nodes, per_node=per_node)


def pools_problem(config: Config, *, num_workers: int, per_node: int) -> Iterator[str]:
    """Yield a problem if the pools are not exactly the workers, or one cannot be put on nodes."""
    if not config.cluster.placement:
        return
    sizes = pool_sizes(config, num_workers)
    shown = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    if sum(sizes.values()) != num_workers or 0 in sizes.values():
        yield (
            f"cluster.placement is {{{shown}}} of {num_workers} workers (cluster.num_nodes={config.cluster.num_nodes} "
            f"x {per_node}); expected at least one worker per pool and {num_workers} together. Change the pools, "
            "or set cluster.workers_per_node."
        )
    trainer = sizes[TRAINER]
    if trainer > per_node and trainer % per_node:
        yield (
            f"cluster.placement gives the trainer {trainer} workers, which is neither at most the {per_node} of a node "
            f"nor a multiple of it. Set a multiple of {per_node}."
        )


POOL_RULES = (pools_are_complete, pools_fit_the_workers)
