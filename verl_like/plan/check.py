"""Memory check before training: refuse a run that cannot fit, and warn of one that may not fit."""

from __future__ import annotations

import logging

from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.plan.advice import advice
from verl_like.plan.devices import GIB
from verl_like.plan.location import location_of
from verl_like.plan.memory import Parts
from verl_like.plan.run_plan import RunPlan, plan_of, shapes_of
from verl_like.plan.tables import host_shortage, line, shortage

log = logging.getLogger(__name__)

# Estimates, which may be too high. A run is refused only because of the other parts, which are exact.
ESTIMATED = ("fixed", "activations", "logits", "engine's steps", "buckets", "allocator")


def check_memory(config: Config) -> RunPlan | None:
    """Refuse a run whose weights, optimiser, gradients and engine exceed the memory of its devices.

    Warn if the run exceeds the memory only with the estimated parts included.

    Returns:
        The plan, or None if the devices are unknown.

    Raises:
        Refused: the message names the stage, its memory and the changes that help.
    """
    location = location_of(config, is_timed=False)
    if location is None:
        return None
    shapes = shapes_of(config)
    rate = config.actor.router_bias_rate
    if rate and not shapes["actor"].has_router_biases:
        from verl_like.ops.routers import lacks_biases

        refuse([lacks_biases(rate, config.model.path)])
    plan = plan_of(config, shapes, location)
    if not plan.holds_a_row:  # only a warning: the engine's working memory is an estimate
        log.warning("%s", shortage(plan))
    if not plan.fits_host:
        log.warning("%s", host_shortage(plan))
    if plan.peak_bytes <= plan.usable_bytes:
        return plan
    total = location.device.memory_gib * GIB
    remedy = "; ".join(map(line, advice(config, shapes, location).changes)) or "use more or larger devices"
    owner = "each GPU" if location.is_gpu else f"each of {location.ranks_per_node} workers on this machine"
    stage, parts = max(plan.stages.items(), key=lambda item: certain(item[1]))
    if certain(parts) > total:
        needed = f"stage {stage} needs {certain(parts) / GIB:.1f} GiB for {named_parts(parts)} on each rank"
        refuse([f"{needed}, but {owner} has {total / GIB:.1f}. Change: {remedy}. See `verl-like plan`."])
    log.warning(
        "stage %s is estimated to need %.1f GiB on each rank, but %s has %.1f. Change: %s. See `verl-like plan`.",
        plan.fullest,
        plan.peak_bytes / GIB,
        owner,
        total / GIB,
        remedy,
    )
    return plan


def certain(parts: Parts) -> float:
    """Return the sum of the bytes that are not estimated."""
    return sum(value for name, value in parts.items() if name not in ESTIMATED)


def named_parts(parts: Parts) -> str:
    """Return the parts that :func:`certain` sums, with their sizes, as text."""
    return ", ".join(f"{name} {value / GIB:.1f}" for name, value in parts.items() if name not in ESTIMATED)
