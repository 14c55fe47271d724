"""Changes that make a planned step faster: another split of the workers into pools, and shards within a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from verl_like.checks.cluster import ranks_problem
from verl_like.checks.pools import ROLLOUT, TRAINER, pool_sizes, pools_problem
from verl_like.config.schema import Config
from verl_like.plan.choices import with_choices
from verl_like.plan.run_plan import RunPlan, plan_of
from verl_like.plan.seconds import stage_seconds, step_seconds
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import Location
from verl_like.plan.step import TRAIN

LEAST_GAIN = 0.05  # of a step; plans are accurate to a factor of two


@dataclass(frozen=True, slots=True)
class Faster:
    """An override, and the seconds of a step with it."""

    override: str
    step_s: float


def faster(
    config: Config, shapes: Mapping[str, ModelShape], location: Location, plan: RunPlan, *, job: str = TRAIN
) -> list[Faster]:
    """Return the changes, each alone, that make a step clearly faster."""
    split = faster_split(config, shapes, location, plan) if plan.step.generates_in_steps else None
    found = (split, faster_shards(config, shapes, location, plan, job=job))
    return [change for change in found if change is not None]


def faster_shards(
    config: Config, shapes: Mapping[str, ModelShape], location: Location, plan: RunPlan, *, job: str = TRAIN
) -> Faster | None:
    """Return shards of the actor within each node if that fits and is clearly faster than shards over all nodes."""
    per_node = location.ranks_per_node
    if location.ranks == per_node or config.actor.fsdp.shard_size not in ("auto", "all"):
        return None
    fsdp = replace(config.actor.fsdp, shard_size=str(per_node))
    other = replace(config, actor=replace(config.actor, fsdp=fsdp))
    after = plan_of(other, shapes, location, response_tokens=plan.response_tokens, job=job)
    change = Faster(f"actor.fsdp.shard_size={per_node}", after.step_s)
    return change if after.fits and change.step_s < (1 - LEAST_GAIN) * plan.step_s else None


def faster_split(config: Config, shapes: Mapping[str, ModelShape], location: Location, plan: RunPlan) -> Faster | None:
    """Return the fastest split between training and generation if it is clearly faster than the run's own.

    Pools of other roles keep their workers.
    """
    if ROLLOUT not in config.cluster.placement:
        return None
    best = min(_splits(config, shapes, location, plan), key=lambda split: split.step_s, default=None)
    return best if best is not None and best.step_s < (1 - LEAST_GAIN) * plan.step_s else None


def _splits(config: Config, shapes: Mapping[str, ModelShape], location: Location, plan: RunPlan) -> Iterator[Faster]:
    size, per_node = config.rollout.tensor_parallel_size, location.ranks_per_node
    present = pool_sizes(config, location.ranks)
    both = present[TRAINER] + present[ROLLOUT]
    for rollout in range(size, both, size):
        sizes = {**present, TRAINER: both - rollout, ROLLOUT: rollout}
        other = replace(config, cluster=replace(config.cluster, placement=dict(sizes)))
        if [
            *pools_problem(other, num_workers=location.ranks, per_node=per_node),
            *ranks_problem(other, per_node=per_node),
        ]:
            continue
        other = with_choices(other, shapes, location)
        seconds = stage_seconds(other, shapes, location, response_tokens=plan.response_tokens)
        shown = ", ".join(f"{name}: {number}" for name, number in sizes.items())
        yield Faster(f"cluster.placement={{{shown}}}", step_seconds(other, seconds))
