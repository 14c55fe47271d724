"""Pools of workers: how many each has, and what cannot work. This module does not import torch."""

from __future__ import annotations

from collections.abc import Iterator

from verl_like.algorithms.roles import needs
from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config

TRAINER, ROLLOUT, REF, CRITIC = "trainer", "rollout", "ref", "critic"
POOLS = (TRAINER, ROLLOUT, REF, CRITIC)


def pool_sizes(config: Config, num_workers: int) -> dict[str, int]:
    """Return the workers of each pool, of ``num_workers`` in all; all of them are the trainer's without a placement."""
    placement = config.cluster.placement
    if not placement:
        return {TRAINER: num_workers}
    return {name: int(size) if size >= 1 else round(size * num_workers) for name, size in placement.items()}


def pool_ranks(config: Config, pool: str, num_workers: int) -> int:
    """Return the number of workers of a pool, of ``num_workers`` in all; a role without a pool has the trainer's."""
    sizes = pool_sizes(config, num_workers)
    return sizes.get(pool, sizes.get(TRAINER, num_workers))


def pools_are_known(config: Config, gpus: Gpus) -> Iterator[str]:
    placement = config.cluster.placement
    if not placement:
        return
    expected = "Set e.g. cluster.placement={trainer: 4, rollout: 4}, or leave it empty to share every worker."
    if unknown := sorted(placement.keys() - set(POOLS)):
        own = (
            " A reward model gets separate workers by reward.model.placement=own and reward.model.num_workers."
            if "reward_model" in unknown
            else ""
        )
        yield f"cluster.placement names {', '.join(unknown)}; expected some of {', '.join(POOLS)}.{own} {expected}"
    if TRAINER not in placement:
        yield f"cluster.placement has no pool {TRAINER}, but a policy needs workers that train it. {expected}"


def pools_have_a_role(config: Config) -> Iterator[str]:
    wanted = needs(config)
    if REF in config.cluster.placement and (not wanted.ref or config.ref_is_actor):
        actor = "the actor itself" if config.algorithm.self_distillation == "self" else "the actor without its adapters"
        found = f"its reference is {actor}" if wanted.ref else "it has no reference in other workers"
        yield f"cluster.placement has the pool {REF}, but the run cannot use it: {found}. Leave out the pool."
    if CRITIC in config.cluster.placement and not wanted.critic:
        yield f"cluster.placement has the pool {CRITIC}, but the run has no critic. Leave out the pool."


def pools_fit_the_workers(config: Config, gpus: Gpus) -> Iterator[str]:
    per_node = gpus.ranks_per_node(config)
    if per_node and not any(pools_are_known(config, gpus)):
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
    for name, size in sizes.items():
        if name != ROLLOUT and size > per_node and size % per_node:
            yield (
                f"cluster.placement gives the pool {name} {size} workers, which is neither at most the {per_node} of a "
                f"node nor a multiple of it. Set a multiple of {per_node}."
            )


POOL_RULES = (pools_are_known, pools_fit_the_workers)
