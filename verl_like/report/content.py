"""Compose the content of a report: the head, which the page reads at once, and shards, which it decodes when needed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from statistics import fmean, median
from typing import Any

from verl_like.report.advice import RunView, advisories
from verl_like.report.advice.run_view import RUNNING, STEP_S
from verl_like.report.groups import groups_of
from verl_like.report.lanes import first_event, lanes, steps_with_lanes
from verl_like.report.options_shown import shown_options
from verl_like.report.panels import described, panels
from verl_like.report.run_files import RunFiles, SamplesFile, distinct_names
from verl_like.report.samples import Shown, compressed, packed_file, shown_samples
from verl_like.report.thinning import MAX_POINTS, rounded, thinned
from verl_like.telemetry.metrics import stages
from verl_like.telemetry.run_ledger import GIB, PEAKS, PLANNED

MAX_SHARD_BYTES = 7.5e6  # of the samples of all runs, compressed: 10 MB in the page, which is base64
# Metrics whose last values stand at the top of the page.
HEADLINES = ("val/mean@*", "val/accuracy", "val/loss", "reward/score_mean", "sft/loss", "dpo/loss", "rm/loss")


ShowSamples = Callable[[Sequence[SamplesFile], str], Shown]


@dataclass(slots=True)
class Content:
    """Content of a report: what the page shows, and what ``verl-like report --json`` prints.

    Args:
        head: JSON; small. ``tests/report/_synthetic.py`` has an example of it and of each shard.
        shards: compressed JSON, by name.
    """

    head: dict[str, Any]
    shards: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class RunContent:
    """The part of one run in the content of a report.

    Args:
        entry: in the head.
        notes: what was left out, a sentence each.
    """

    entry: dict[str, Any]
    shards: dict[str, bytes]
    notes: list[str]


def content_of(runs: Sequence[RunFiles]) -> Content:
    """Return the content of a report on these runs; those that have samples share the space for them."""
    share = MAX_SHARD_BYTES / max(sum(bool(run.samples()) for run in runs), 1)
    show = partial(shown_samples, pack=packed_file, max_shard_bytes=share)
    return composed(runs, [run_content(run, f"r{number}", show_samples=show) for number, run in enumerate(runs)])


def composed(runs: Sequence[RunFiles], parts: Sequence[RunContent]) -> Content:
    """Return the content of a report, made of the parts of its runs."""
    metrics, names = list(dict.fromkeys(name for run in runs for name in run.series)), distinct_names(runs)
    head = {
        "made_unix_s": round(time.time(), 3),
        "by": _program(),
        "title": names[0] if len(runs) == 1 else f"{len(runs)} runs",
        "live": None,
        "metrics": described(metrics),
        "panels": panels(metrics),
        "runs": [part.entry | {"name": name} for name, part in zip(names, parts, strict=True)],
        "groups": _groups(runs, names),
        "notes": [
            note if len(runs) == 1 else f"{name}: {note}"
            for name, part in zip(names, parts, strict=True)
            for note in part.notes
        ],
    }
    return Content(head, {name: shard for part in parts for name, shard in part.shards.items()})


def _program() -> str:
    try:
        return f"verl_like {version('verl_like')}"
    except PackageNotFoundError:
        return "verl_like"


def run_content(run: RunFiles, prefix: str, *, show_samples: ShowSamples) -> RunContent:
    """Return the part of a run.

    Args:
        prefix: of the names of its shards.
        show_samples: chooses and compresses its samples.
    """
    shards: dict[str, bytes] = {}
    notes = []
    if max(map(len, run.series.values()), default=0) > MAX_POINTS:
        notes.append(f"Curves of over {MAX_POINTS:,} steps show the lowest and highest values of neighbouring steps.")
    shards[f"{prefix}-curves"] = compressed(_curves(run))
    shards[f"{prefix}-settings"] = compressed({"options": shown_options(run.settings, run.origins)})
    samples = show_samples(run.samples(), prefix)
    shards |= samples.shards
    if samples.steps:
        shards[f"{prefix}-samples"] = compressed(samples.index)
    stalls, ledger = run.stalls(), _ledger(run)
    if stalls:
        shards[f"{prefix}-stalls"] = compressed(stalls)
    if ledger:
        shards[f"{prefix}-processes"] = compressed(_processes(ledger) | {"memory": _memory(run)})
    entry = {
        "job": run.job,
        "status": run.status,
        "step": run.last_step,
        "total_steps": run.total_steps,
        "seed": run.seed,
        "key_numbers": _key_numbers(run),
        "starts": [{"at": at, "command": command} for at, command in run.starts],
        "versions": dict(run.versions()),
        "environment": run.environment,
        "advisories": [asdict(advisory) for advisory in advisories(view_of(run, ledger))],
        "curves": f"{prefix}-curves",
        "settings": f"{prefix}-settings",
        "lanes": _lanes(run, prefix, shards),
        "processes": f"{prefix}-processes" if ledger else None,
        "stalls": f"{prefix}-stalls" if stalls else None,
        "samples": {"index": f"{prefix}-samples", "steps": samples.steps} if samples.steps else None,
    }
    return RunContent(entry, shards, [*notes, *samples.notes])


def _curves(run: RunFiles) -> dict[str, Any]:
    """Return the series, thinned, and the mean seconds of each stage and of a step, over all steps.

    A stage takes 0 s in a step that does not report it, such as ``time/ref_reset_s`` in most steps.
    """
    zeros = dict.fromkeys(run.series.get(STEP_S, {}), 0.0)
    filled = {name: dict(sorted((zeros | run.series[name]).items())) for name in stages(run.series)}
    series = run.series | filled
    seconds = {name: list(filter(math.isfinite, series[name].values())) for name in (*filled, STEP_S) if name in series}
    return {
        "series": {name: thinned(points) for name, points in series.items()},
        "means": {name: rounded(fmean(values)) for name, values in seconds.items() if values},
    }


def view_of(run: RunFiles, ledger: Mapping[str, Mapping[str, float]]) -> RunView:
    """Return what the rules of advice judge.

    Args:
        ledger: process -> stage -> seconds.
    """
    stalls, status, ends = run.stalls(), run.status, run.points("progress/unix_s")
    # A continued run is silent since its start, not since the last step of the start before.
    newest = max([*list(ends.values())[-1:], run.started_unix_s])
    return RunView(
        series=run.series,
        config=run.config,
        ledger=ledger,
        num_stalls=len(stalls),
        first_stall=stalls[0]["verdict"] if stalls else "",
        status=status,
        total_steps=run.total_steps,
        silent_s=time.time() - newest if ends and status == RUNNING else None,
        num_failed_samples=run.num_failed_samples(),
        records_gib=run.records_bytes() / GIB,
    )


def _key_numbers(run: RunFiles) -> list[dict[str, str]]:
    """Return the numbers that stand at the top of the page."""
    names = [name for pattern in HEADLINES for name in run.series if fnmatchcase(name, pattern)]
    found = [_last(run, name) for name in names]
    if seconds := run.points(STEP_S).values():
        found.append({"name": "step", "text": f"{median(seconds):.3g} s", "hint": f"median of {len(seconds)}"})
    if "perf/tokens_per_s" in run.series:
        found.append(_last(run, "perf/tokens_per_s"))
    return [entry for entry in found if entry]


def _last(run: RunFiles, name: str) -> dict[str, str]:
    points = run.points(name)
    if not points:
        return {}
    step, value = next(reversed(points.items()))
    return {"name": name, "text": f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}", "hint": f"step {step}"}


def _ledger(run: RunFiles) -> dict[str, dict[str, float]]:
    """Return process -> stage -> seconds, over the run."""
    total: dict[str, dict[str, float]] = {}
    for row in run.ledger():
        seconds = total.setdefault(str(row.get("process", "")), {})
        for stage, value in (row.get("seconds") or {}).items():
            seconds[stage] = seconds.get(stage, 0.0) + value
    return total


def _processes(ledger: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    return {
        "stages": list(dict.fromkeys(stage for seconds in ledger.values() for stage in seconds)),
        "processes": [
            {"process": who, "seconds": {stage: round(value, 3) for stage, value in seconds.items()}}
            for who, seconds in ledger.items()
        ],
    }


def _memory(run: RunFiles) -> dict[str, float | None]:
    """Return the planned and the largest memory of a worker in GiB."""
    largest = [max(points.values()) for name in PEAKS if (points := run.points(name))]
    planned = list(run.points(PLANNED).values())
    return {
        "planned_gib": round(planned[-1], 3) if planned else None,
        "largest_gib": round(largest[0], 3) if largest else None,
    }


def _lanes(run: RunFiles, prefix: str, shards: dict[str, bytes]) -> dict[str, Any]:
    ends, seconds = run.points("progress/unix_s"), run.points(STEP_S)
    steps = steps_with_lanes(ends, seconds, first_event(run.trace()))
    if not steps:
        return {}
    for step, found in lanes(run.trace(), {step: (ends[step] - seconds[step], ends[step]) for step in steps}).items():
        shards[f"{prefix}-lanes-{step}"] = compressed(found)
    return {"steps": steps, "shard": f"{prefix}-lanes-{{step}}"}


def _groups(runs: Sequence[RunFiles], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the groups of several runs that differ only in seed and name."""
    groups = groups_of([run.settings for run in runs])
    return [{"name": names[members[0]], "runs": members} for members in groups if len(members) > 1]
