"""Memory check before training: refuse a run that cannot fit, and warn of one that may not fit."""

from __future__ import annotations

import logging

from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.plan.advice import advice
from verl_like.plan.devices import GIB
from verl_like.plan.location import place_of
from verl_like.plan.memory import Parts
from verl_like.plan.run_plan import RunPlan, made, shapes_of
from verl_like.plan.tables import host_shortage, line, shortage

log = logging.getLogger(__name__)

# Estimates, which may be too high; a run is refused only for the other parts, which are exact.
ESTIMATED = ("fixed", "activations", "logits", "engine's steps", "buckets", "allocator")


def check_memory(config: Config) -> RunPlan | None:
    """Refuse a run whose weights, optimiser, gradients and engine exceed the memory of its devices.

    Warn if the run exceeds the memory only with the estimated parts included.

    Returns:
        The plan, or None if the devices are unknown.

    Raises:
        Refused: the message names the stage, its memory and the changes that help.
    """
    place = place_of(config, is_timed=False)
    if place is None:
        return None
    shapes = shapes_of(config)
    plan = made(config, shapes, place)
    if not plan.holds_a_row:  # only a warning: the engine's working memory is an estimate
        log.warning("%s", shortage(plan))
    if not plan.fits_host:
        log.warning("%s", host_shortage(plan))
    if plan.peak_bytes <= plan.room_bytes:
        return plan
    total = place.device.memory_gib * GIB
    remedy = "; ".join(map(line, advice(config, shapes, place).changes)) or "more or larger devices"
    whose = "each GPU" if place.is_gpu else f"each of {place.ranks_per_node} workers on this machine"
    stage, parts = max(plan.stages.items(), key=lambda item: certain(item[1]))
    if certain(parts) > total:
        found_there = f"stage {stage} needs {certain(parts) / GIB:.1f} GiB for {named_parts(parts)} on each rank"
        refuse([f"{found_there}, but {whose} has {total / GIB:.1f}. Change: {remedy}. See `verl-like plan`."])
    log.warning(
        "stage %s is planned to take %.1f GiB on each rank; %s has %.1f. Change: %s. See `verl-like plan`.",
        plan.fullest,
        plan.peak_bytes / GIB,
        whose,
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
