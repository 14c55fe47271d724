"""Text tables of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from verl_like.plan.advice import Advice, Change
from verl_like.plan.devices import GIB
from verl_like.plan.faster import Faster
from verl_like.plan.run_plan import RunPlan


def text(plan: RunPlan, advice: Advice, better: Sequence[Faster] = ()) -> str:
    """Return the output of ``verl-like plan``.

    Args:
        advice: the advice for this plan.
        better: changes that make a step faster.
    """
    proposed = [f"faster: {change.override} ({_seconds(change.step_s)} s a step)" for change in better]
    return "\n".join([*_head(plan), "", *_stages(plan), "", *_rest(plan), *proposed, "", *_conclusion(plan, advice)])


def _head(plan: RunPlan) -> Iterator[str]:
    location = plan.location
    nodes = location.ranks // location.ranks_per_node
    where = f"{nodes} nodes of {location.workers}" if nodes > 1 else location.workers
    if location.threads:
        where += f" of {location.threads} thread{'s' * (location.threads > 1)}"
    yield f"{where}, {location.device.name}, {location.device.memory_gib:.1f} GiB each"
    for role, shape in plan.shapes.items():
        whole = "" if role in plan.cut_roles else ", whole on each worker"
        adapters = f", {count(shape.num_adapter_parameters)} in adapters" if shape.num_adapter_parameters else ""
        yield f"{role}: {count(shape.num_parameters)} parameters in {shape.num_layers} layers{adapters}{whole}"


def _stages(plan: RunPlan) -> Iterator[str]:
    """Yield the lines of a table in GiB, with a row per part and a column per stage."""
    stages = [*plan.stages, *(stage for stage in plan.seconds if stage not in plan.stages)]
    names = list(dict.fromkeys(part for parts in plan.stages.values() for part in parts))
    rows = [["GiB of the fullest rank", *stages]]
    rows += [[name, *(_gib(plan.stages.get(stage, {}).get(name)) for stage in stages)] for name in names]
    rows.append(["all", *(_gib(plan.bytes_in(stage) if stage in plan.stages else None) for stage in stages)])
    if is_timed(plan):
        rows.append(["seconds", *(_seconds(plan.seconds[stage]) if stage in plan.seconds else "" for stage in stages)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield f"{row[0].ljust(widths[0])}  {'  '.join(cells)}"


def _rest(plan: RunPlan) -> Iterator[str]:
    if is_timed(plan):
        step_s = _seconds(plan.step_s)
        yield f"a step: {step_s} s with responses of {plan.response_tokens:.0f} tokens (to a factor of two)"
    else:
        yield f"a step: unknown, because {plan.location.device.name} is not in the table of devices"
    if plan.step.before and is_timed(plan):
        names = ", ".join(sorted(plan.step.before))
        yield f"before the first step, once for all rows: {names}; its seconds are those of a step's rows"
    if plan.step.in_validation:
        names = ", ".join(stage for stage in plan.stages if stage in plan.step.in_validation)
        yield f"only in validations, and without seconds here: {names}"
    if plan.step.generates:
        yield f"engine's cache: {plan.cache_tokens:,.0f} tokens"
    if plan.location.is_gpu:
        yield from _choices(plan)
    yield f"host memory of a node: {_sum(plan.host)}"
    yield f"disk: {_sum(plan.disk, total=False)}"


def _choices(plan: RunPlan) -> Iterator[str]:
    """Yield the lines of what ``auto`` stands for."""
    actor, rollout, model = plan.config.actor, plan.config.rollout, plan.config.model
    if plan.step.generates:
        share = f"{rollout.memory_share:.0%} of a GPU (rollout.gpu_memory_utilization)"
        yield f"an engine: {rollout.num_seqs} sequences at once (rollout.max_num_seqs) in {share}"
    if model.gradient_checkpointing.isdecimal():
        shape = plan.shapes["actor"]
        number = f"{model.gradient_checkpointing} of {shape.num_layers + len(shape.vision_parts)}"
        yield f"layers recomputed in backward: {number} (model.gradient_checkpointing)"
    yield f"tokens of an update's pass: {actor.max_tokens_per_micro_batch} (actor.max_tokens_per_micro_batch)"
    if plan.shapes["actor"].vocab_size:
        yield f"logits at once: {actor.logits_mib:,} MiB (actor.log_prob_chunk_mib)"


def _conclusion(plan: RunPlan, advice: Advice) -> Iterator[str]:
    if not plan.holds_a_row:
        yield shortage(plan)
    if not plan.fits_host:
        yield host_shortage(plan)
    if plan.peak_bytes <= plan.usable_bytes:
        yield from [f"It fits: the peak is {_gib(plan.peak_bytes)} GiB, in {plan.fullest}."] * plan.fits
        return
    yield f"It does not fit: {plan.fullest} takes {_gib(plan.peak_bytes)} of {_gib(plan.usable_bytes)} usable GiB."
    if advice.changes:
        yield "Change, in this order:"
    yield from (f"  {line(change)}" for change in advice.changes)
    after = advice.plan
    if after.peak_bytes > after.usable_bytes:
        yield f"Even then {after.fullest} takes {_gib(after.peak_bytes)} GiB: more or larger accelerators are needed."


def shortage(plan: RunPlan) -> str:
    """Return the problem of an engine whose cache cannot hold one sequence."""
    option = "rollout.gpu_memory_utilization" if plan.location.is_gpu else "rollout.kv_cache_memory_gib"
    return (
        f"the engine's cache holds {plan.cache_tokens:,.0f} tokens, but one sequence may have "
        f"{plan.longest_row:,}. Raise {option}, or spread an engine over more ranks (rollout.tensor_parallel_size)."
    )


def host_shortage(plan: RunPlan) -> str:
    """Return the problem of a machine without GPUs whose memory is too small for all processes."""
    memory = plan.location.device.memory_gib * plan.location.ranks_per_node * GIB
    return (
        f"the processes of the run are estimated to need {_gib(sum(plan.host.values()))} GiB, but this machine has "
        f"{_gib(memory)}. Lower cluster.workers_per_node ({plan.location.ranks_per_node})."
    )


def line(change: Change) -> str:
    """Return a change and its effect as text."""
    return f"{change.override}  ({change.stage}: {_gib(change.before)} -> {_gib(change.after)} GiB)"


def count(number: float) -> str:
    """Return a number of parameters as text, such as 1.5B."""
    return f"{number / 1e9:.1f}B" if number >= 1e9 else f"{number / 1e6:.1f}M"


def is_timed(plan: RunPlan) -> bool:
    """Return whether the rates of the plan's devices are known."""
    return all(map(math.isfinite, plan.seconds.values()))


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _gib(value: float | None) -> str:
    return "" if value is None else f"{value / GIB:.1f}" if abs(value) >= GIB else f"{value / GIB:.2f}"


def _sum(parts: Mapping[str, float], *, total: bool = True) -> str:
    found = ", ".join(f"{name} {_gib(value)}" for name, value in parts.items())
    return f"{_gib(sum(parts.values()))} GiB ({found})" if total else f"{found} GiB"
