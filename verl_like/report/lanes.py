"""Lanes of the processes for some steps: what each process did when, from the run's trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

MAX_STEPS = 24  # with lanes
MAX_SPANS = 4000  # of a step; the shortest are left out
MAX_FIRST = 20_000  # events, among which those of the first step are


def steps_with_lanes(ends: Mapping[int, float], seconds: Mapping[int, float], first_event: float) -> list[int]:
    """Choose steps: the first, the last, the slowest and the typical one, and others evenly between them.

    Args:
        ends: step -> end as Unix time.
        seconds: step -> its seconds.
        first_event: start of the trace as Unix time; it lacks older steps.
    """
    known = [step for step, end in ends.items() if step in seconds and end - seconds[step] >= first_event]
    if not known:
        return []
    by_seconds = sorted(known, key=seconds.__getitem__)
    chosen = {known[0], known[-1], by_seconds[-1], by_seconds[len(known) // 2]}
    spacing = max(len(known) / (MAX_STEPS - len(chosen)), 1.0)
    evenly = (known[int(i * spacing)] for i in range(MAX_STEPS) if int(i * spacing) < len(known))
    for step in evenly:
        if len(chosen) < MAX_STEPS:
            chosen.add(step)
    return sorted(chosen)


def first_event(events: Iterable[Mapping[str, Any]]) -> float:
    """Return the start of the earliest visit as Unix time; infinity without any.

    Steps are written one after the other, so only the first events are read.
    """
    starts = (event["ts"] / 1e6 for event in islice(events, MAX_FIRST) if event.get("ph") == "X")
    return min(starts, default=float("inf"))


def lanes(events: Iterable[Mapping[str, Any]], windows: Mapping[int, tuple[float, float]]) -> dict[int, dict[str, Any]]:
    """Return the lanes of each step.

    Args:
        events: of the trace.
        windows: step -> start and end as Unix time; they do not overlap.
    """
    steps = sorted(windows, key=lambda step: windows[step][0])
    starts = [windows[step][0] for step in steps]
    names: dict[int, str] = {}  # of the start of the run that wrote the event: in a container, numbers are reused
    found: dict[int, dict[str, list[tuple[str, float, float]]]] = {step: {} for step in steps}
    for event in events:
        if event.get("ph") == "M":
            names[event["pid"]] = str(event["args"]["name"])
        elif event.get("ph") == "X":
            start, end = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
            who = names.get(event["pid"], f"process {event['pid']}")
            for step in _touched(start, end, steps, starts, windows):
                found[step].setdefault(who, []).append((event["name"], start, end))
    return {step: _shard(found[step], *windows[step]) for step in steps}


def _touched(
    start: float, end: float, steps: Sequence[int], starts: Sequence[float], windows: Mapping[int, tuple[float, float]]
) -> Iterable[int]:
    """Yield the steps in whose time an event was."""
    for number in range(max(bisect_right(starts, start) - 1, 0), bisect_right(starts, end)):
        if windows[steps[number]][1] > start:
            yield steps[number]


def _shard(visits: Mapping[str, list[tuple[str, float, float]]], start: float, end: float) -> dict[str, Any]:
    lengths = sorted((b - a for each in visits.values() for _, a, b in each), reverse=True)
    shortest = lengths[MAX_SPANS] if len(lengths) > MAX_SPANS else -1.0
    stages = sorted({stage for each in visits.values() for stage, _, _ in each})
    index = {stage: i for i, stage in enumerate(stages)}

    def spans(each: list[tuple[str, float, float]]) -> list[list[float]]:
        inside = [(stage, max(a, start), min(b, end)) for stage, a, b in each if b - a > shortest]
        return [[index[stage], _ms(a - start), _ms(b - start)] for stage, a, b in inside]

    return {
        "start": start,
        "end": end,
        "stages": stages,
        "lanes": [{"process": who, "spans": spans(each)} for who, each in visits.items()],
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
