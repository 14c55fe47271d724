"""The split of the workers into pools that makes a step fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from verl_like.checks.cluster import ranks_problem
from verl_like.checks.pools import ROLLOUT, TRAINER, pool_sizes, pools_problem
from verl_like.config.schema import Config
from verl_like.plan.choices import with_choices
from verl_like.plan.run_plan import RunPlan
from verl_like.plan.seconds import stage_seconds, step_seconds
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import Location

LEAST_GAIN = 0.05  # of a step; plans are accurate to a factor of two


@dataclass(frozen=True, slots=True)
class Split:
    """Pools, as an override, and the seconds of a step with them."""

    override: str
    step_s: float


def faster_split(config: Config, shapes: Mapping[str, ModelShape], location: Location, plan: RunPlan) -> Split | None:
    """Return the fastest split between training and generation if it is clearly faster than the run's own.

    Pools of other roles keep their workers.
    """
    if ROLLOUT not in config.cluster.placement:
        return None
    best = min(_splits(config, shapes, location, plan), key=lambda split: split.step_s, default=None)
    return best if best is not None and best.step_s < (1 - LEAST_GAIN) * plan.step_s else None


def _splits(config: Config, shapes: Mapping[str, ModelShape], location: Location, plan: RunPlan) -> Iterator[Split]:
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
        yield Split(f"cluster.placement={{{shown}}}", step_seconds(other, seconds))
