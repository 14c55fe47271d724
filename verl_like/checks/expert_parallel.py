"""Rules on experts that stay on their ranks. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.checks.cluster import shardings
from verl_like.checks.experts import EXPERTS, num_experts
from verl_like.checks.gpus import Gpus
from verl_like.checks.models import config_of
from verl_like.checks.pools import CRITIC, REF, TRAINER, pool_ranks
from verl_like.config.schema import Config


def only_experts_can_be_parallel(config: Config, gpus: Gpus) -> Iterator[str]:
    for section, path in _parallel(config):
        model = config_of(path, config.model.override_config)
        if model and not num_experts(config, path):
            yield (
                f"{section}.fsdp.expert_parallel is true, but {path} has no experts ({', '.join(EXPERTS)} in its "
                f"config.json). Name a mixture of experts, or set {section}.fsdp.expert_parallel=false."
            )


def parallel_experts_are_sharded(config: Config, gpus: Gpus) -> Iterator[str]:
    for section in _sections(config):
        fsdp = shardings(config)[section]
        if fsdp.shard_size == "1":
            yield (
                f"{section}.fsdp.expert_parallel divides the experts among ranks, but {section}.fsdp.shard_size=1 "
                f"gives each rank a whole replica. Set {section}.fsdp.shard_size=all, or "
                f"{section}.fsdp.expert_parallel=false."
            )
        if fsdp.cpu_offload:
            yield (
                f"{section}.fsdp.cpu_offload moves the parameters that FSDP gathers to the GPU, but those of "
                f"{section}.fsdp.expert_parallel are not gathered. Set one of them to false; "
                f"{section}.fsdp.offload_params=true works with both."
            )


def parallel_experts_are_not_compiled(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.actor.fsdp.expert_parallel and config.actor.compile_layers == "true":
        yield (
            "actor.compile_layers compiles layers that do not communicate, but with actor.fsdp.expert_parallel=true "
            "they exchange tokens with other ranks. Set actor.compile_layers=false, or "
            "actor.fsdp.expert_parallel=false."
        )


def experts_divide_among_ranks(config: Config, gpus: Gpus) -> Iterator[str]:
    per_node = gpus.ranks_per_node(config)
    if per_node:
        yield from experts_problem(config, per_node=per_node)


def experts_problem(config: Config, *, per_node: int) -> Iterator[str]:
    """Yield a problem for each model whose experts cannot be divided equally, with ``per_node`` workers a node."""
    num_workers = per_node * config.cluster.num_nodes
    for section, path in _parallel(config):
        experts, ranks = num_experts(config, path), _ranks_that_share(config, section, num_workers)
        if experts and experts % ranks:
            yield (
                f"{section}.fsdp.expert_parallel divides experts equally, but {path} has {experts} in a layer, and "
                f"{ranks} ranks share them. Set {section}.fsdp.shard_size to a divisor of both the ranks and "
                f"{experts}, or {section}.fsdp.expert_parallel=false."
            )


def _sections(config: Config) -> list[str]:
    return [section for section, fsdp in shardings(config).items() if fsdp.expert_parallel]


def _parallel(config: Config) -> Iterator[tuple[str, str]]:
    """Yield (section, path) of each model whose experts are to stay on their ranks."""
    own = {"ref": config.ref.path, "critic": config.critic.path, "reward.model": config.reward.model.path}
    for section in _sections(config):
        teachers = config.ref.teachers.values() if section == "ref" else ()
        yield from ((section, path) for path in (teachers or [own.get(section) or config.model.path]) if path)


def _ranks_that_share(config: Config, section: str, num_workers: int) -> int:
    """Return the number of ranks over which a model is sharded, with ``num_workers`` hybrid workers."""
    size, scorer = shardings(config)[section].shard_size, config.reward.model
    if size.isdecimal():
        return int(size)
    if section == "reward.model" and scorer.placement == "own":
        return scorer.num_workers
    return pool_ranks(config, {"ref": REF, "critic": CRITIC}.get(section, TRAINER), num_workers)


EXPERT_PARALLEL_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    only_experts_can_be_parallel,
    parallel_experts_are_sharded,
    parallel_experts_are_not_compiled,
    experts_divide_among_ranks,
)
