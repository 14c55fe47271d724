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
        first_event: begin of the trace as Unix time; it lacks older steps.
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
    """Return the begin of the earliest visit as Unix time; infinity without any.

    Steps are written one after the other, so only the first events are read.
    """
    begins = (event["ts"] / 1e6 for event in islice(events, MAX_FIRST) if event.get("ph") == "X")
    return min(begins, default=float("inf"))


def lanes(events: Iterable[Mapping[str, Any]], windows: Mapping[int, tuple[float, float]]) -> dict[int, dict[str, Any]]:
    """Return the lanes of each step.

    Args:
        events: of the trace.
        windows: step -> begin and end as Unix time; they do not overlap.
    """
    steps = sorted(windows, key=lambda step: windows[step][0])
    begins = [windows[step][0] for step in steps]
    names: dict[int, str] = {}
    found: dict[int, dict[int, list[tuple[str, float, float]]]] = {step: {} for step in steps}
    for event in events:
        if event.get("ph") == "M":
            names[event["pid"]] = str(event["args"]["name"])
        elif event.get("ph") == "X":
            start, end = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
            for step in _touched(start, end, steps, begins, windows):
                found[step].setdefault(event["pid"], []).append((event["name"], start, end))
    return {step: _shard(found[step], names, *windows[step]) for step in steps}


def _touched(
    start: float, end: float, steps: Sequence[int], begins: Sequence[float], windows: Mapping[int, tuple[float, float]]
) -> Iterable[int]:
    """Yield the steps in whose time an event was."""
    for number in range(max(bisect_right(begins, start) - 1, 0), bisect_right(begins, end)):
        if windows[steps[number]][1] > start:
            yield steps[number]


def _shard(
    visits: Mapping[int, list[tuple[str, float, float]]], names: Mapping[int, str], begin: float, end: float
) -> dict[str, Any]:
    lengths = sorted((b - a for each in visits.values() for _, a, b in each), reverse=True)
    shortest = lengths[MAX_SPANS] if len(lengths) > MAX_SPANS else -1.0
    stages = sorted({stage for each in visits.values() for stage, _, _ in each})
    index = {stage: i for i, stage in enumerate(stages)}

    def spans(each: list[tuple[str, float, float]]) -> list[list[float]]:
        inside = [(stage, max(a, begin), min(b, end)) for stage, a, b in each if b - a > shortest]
        return [[index[stage], _ms(a - begin), _ms(b - begin)] for stage, a, b in inside]

    return {
        "start": begin,
        "end": end,
        "stages": stages,
        "lanes": [{"process": names.get(pid, f"process {pid}"), "spans": spans(each)} for pid, each in visits.items()],
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
