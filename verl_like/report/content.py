"""Compose the content of a report: the head, which the page reads at once, and shards, which it decodes when needed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from verl_like.report.advice import RunView, advisories
from verl_like.report.groups import groups_of
from verl_like.report.lanes import first_event, lanes, steps_with_lanes
from verl_like.report.options_shown import shown_options
from verl_like.report.panels import described, panels
from verl_like.report.run_files import RunFiles, SamplesFile
from verl_like.report.samples import Shown, compressed, shown_samples
from verl_like.report.thinning import MAX_POINTS, thinned
from verl_like.telemetry.run_ledger import GIB, PEAKS, PLANNED

FORMAT = 1
# Metrics whose last values stand at the top of the page.
HEADLINES = ("val/mean@*", "val/accuracy", "val/loss", "reward/score_mean", "sft/loss", "dpo/loss", "rm/loss")


ShowSamples = Callable[[Sequence[SamplesFile], str], Shown]


@dataclass(slots=True)
class Content:
    """Content of a report; ``docs/report.md`` describes it.

    Args:
        head: JSON; small.
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
    """Return the content of a report on these runs."""
    return composed(runs, [run_content(run, f"r{number}") for number, run in enumerate(runs)])


def composed(runs: Sequence[RunFiles], parts: Sequence[RunContent]) -> Content:
    """Return the content of a report, made of the parts of its runs."""
    names = list(dict.fromkeys(name for run in runs for name in run.series))
    head = {
        "format": FORMAT,
        "made_unix_s": round(time.time(), 3),
        "by": _program(),
        "title": runs[0].name if len(runs) == 1 else f"{len(runs)} runs",
        "live": None,
        "metrics": described(names),
        "panels": panels(names),
        "runs": [part.entry for part in parts],
        "groups": _groups(runs),
        "notes": [
            note if len(runs) == 1 else f"{run.name}: {note}"
            for run, part in zip(runs, parts, strict=True)
            for note in part.notes
        ],
    }
    return Content(head, {name: shard for part in parts for name, shard in part.shards.items()})


def _program() -> str:
    try:
        return f"verl_like {version('verl_like')}"
    except PackageNotFoundError:
        return "verl_like"


def run_content(run: RunFiles, prefix: str, *, show_samples: ShowSamples = shown_samples) -> RunContent:
    """Return the part of a run.

    Args:
        prefix: of the names of its shards.
        show_samples: chooses and compresses its samples.
    """
    shards: dict[str, bytes] = {}
    notes = []
    if max(map(len, run.series.values()), default=0) > MAX_POINTS:
        notes.append(f"Curves of over {MAX_POINTS:,} steps show the lowest and highest values of neighbouring steps.")
    shards[f"{prefix}-curves"] = compressed({"series": {name: thinned(points) for name, points in run.series.items()}})
    shards[f"{prefix}-settings"] = compressed({"options": shown_options(run.settings, run.origins)})
    samples = show_samples(run.samples(), prefix)
    shards |= samples.shards
    if samples.steps:
        shards[f"{prefix}-samples"] = compressed(samples.index)
    stalls, processes = run.stalls(), _processes(run)
    if stalls:
        shards[f"{prefix}-stalls"] = compressed(stalls)
    if processes["processes"]:
        shards[f"{prefix}-processes"] = compressed(processes)
    entry = {
        "name": run.name,
        "folder": run.name,
        "job": run.job,
        "status": run.status,
        "step": run.last_step,
        "total_steps": run.total_steps,
        "seed": (run.settings.get("trainer") or {}).get("seed"),
        "key_numbers": _key_numbers(run),
        "starts": [{"at": at, "command": command} for at, command in run.starts],
        "versions": dict(run.versions()),
        "environment": _environment(run),
        "advisories": [asdict(advisory) for advisory in advisories(view_of(run, processes))],
        "curves": f"{prefix}-curves",
        "settings": f"{prefix}-settings",
        "lanes": _lanes(run, prefix, shards),
        "processes": f"{prefix}-processes" if processes["processes"] else None,
        "stalls": f"{prefix}-stalls" if stalls else None,
        "samples": {"index": f"{prefix}-samples", "steps": samples.steps, "columns": samples.token_columns}
        if samples.steps
        else None,
    }
    return RunContent(entry, shards, [*notes, *samples.notes])


def view_of(run: RunFiles, processes: Mapping[str, Any]) -> RunView:
    """Return what the rules of advice judge.

    Args:
        processes: of :func:`_processes`.
    """
    stalls, status = run.stalls(), run.status
    newest = _finite(run, "progress/unix_s")
    return RunView(
        series=run.series,
        config=run.config,
        ledger={entry["process"]: entry["seconds"] for entry in processes["processes"]},
        num_stalls=len(stalls),
        first_stall=stalls[0]["verdict"] if stalls else "",
        status=status,
        total_steps=run.total_steps,
        silent_s=time.time() - newest[-1] if newest and status == "running" else None,
        num_failed_samples=run.num_failed_samples(),
        planned_gib=processes["memory"]["planned_gib"],
        largest_gib=processes["memory"]["largest_gib"],
        records_gib=run.records_bytes() / GIB,
    )


def _environment(run: RunFiles) -> dict[str, str]:
    found = {"model": run.summary.get("model"), "commit": run.summary.get("git_commit")}
    return {name: str(value) for name, value in found.items() if value}


def _key_numbers(run: RunFiles) -> list[dict[str, str]]:
    """Return the numbers that stand at the top of the page."""
    names = [name for pattern in HEADLINES for name in run.series if fnmatchcase(name, pattern)]
    found = [_last(run, name) for name in names]
    seconds = [value for value in run.series.get("time/step_s", {}).values() if math.isfinite(value)]
    if seconds:
        typical = sorted(seconds)[len(seconds) // 2]
        found.append({"name": "step", "text": f"{typical:.3g} s", "hint": f"median of {len(seconds)}"})
    if "perf/tokens_per_s" in run.series:
        found.append(_last(run, "perf/tokens_per_s"))
    return [entry for entry in found if entry]


def _last(run: RunFiles, name: str) -> dict[str, str]:
    points = {step: value for step, value in run.series[name].items() if math.isfinite(value)}
    if not points:
        return {}
    step, value = next(reversed(points.items()))
    return {"name": name, "text": f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}", "hint": f"step {step}"}


def _processes(run: RunFiles) -> dict[str, Any]:
    """Return the seconds of each process by stage, over the run, and the memory of the largest worker."""
    total: dict[str, dict[str, float]] = {}
    for row in run.ledger():
        seconds = total.setdefault(str(row.get("process", "")), {})
        for stage, value in (row.get("seconds") or {}).items():
            seconds[stage] = seconds.get(stage, 0.0) + value
    return {
        "stages": list(dict.fromkeys(stage for seconds in total.values() for stage in seconds)),
        "processes": [
            {"process": who, "seconds": {stage: round(value, 3) for stage, value in seconds.items()}}
            for who, seconds in total.items()
        ],
        "memory": memory_of(run),
    }


def memory_of(run: RunFiles) -> dict[str, float | None]:
    """Return the planned and the largest memory of a worker in GiB."""
    largest = [max(finite) for name in PEAKS if (finite := _finite(run, name))]
    planned = _finite(run, PLANNED)
    return {
        "planned_gib": round(planned[-1], 3) if planned else None,
        "largest_gib": round(largest[0], 3) if largest else None,
    }


def _finite(run: RunFiles, name: str) -> list[float]:
    return [value for value in run.series.get(name, {}).values() if math.isfinite(value)]


def _lanes(run: RunFiles, prefix: str, shards: dict[str, bytes]) -> dict[str, Any]:
    ends = {s: v for s, v in run.series.get("progress/unix_s", {}).items() if math.isfinite(v)}
    seconds = {s: v for s, v in run.series.get("time/step_s", {}).items() if math.isfinite(v)}
    steps = steps_with_lanes(ends, seconds, first_event(run.trace()))
    if not steps:
        return {}
    for step, found in lanes(run.trace(), {step: (ends[step] - seconds[step], ends[step]) for step in steps}).items():
        shards[f"{prefix}-lanes-{step}"] = compressed(found)
    return {"steps": steps, "shard": f"{prefix}-lanes-{{step}}"}


def _groups(runs: Sequence[RunFiles]) -> list[dict[str, Any]]:
    """Return the groups of several runs that differ only in seed and name."""
    groups = groups_of([run.settings for run in runs])
    return [{"name": runs[members[0]].name, "runs": members} for members in groups if len(members) > 1]
