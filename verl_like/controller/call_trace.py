"""Turn Ray's record of calls into a trace with one lane per process, named as in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CALL = "task::"  # prefix of a call's name
SEPARATOR = ": "


def called(process: str, method: str) -> str:
    """Return the name of a call for Ray; :func:`call_trace` derives the lanes from these names."""
    return f"{process}{SEPARATOR}{method}"


def call_trace(recorded: Iterable[Mapping[str, Any]], *, start: float, end: float) -> list[dict[str, Any]]:
    """Return events in Chrome's trace format, for ui.perfetto.dev.

    Args:
        recorded: Ray's own events in the same format. ``tid`` is the id of a process; the category of a call contains
            its name.
        start, end: Unix seconds; events entirely outside this interval are dropped.
    """
    events = sorted(recorded, key=lambda event: event["ts"])
    names = {event["tid"]: _process(event) for event in events if _process(event)}
    bars = [event for event in events if event["ts"] < end * 1e6 and event["ts"] + event["dur"] > start * 1e6]
    lanes = {name: number for number, name in enumerate(sorted({_lane(event, names) for event in bars}))}
    named = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}} for name, number in lanes.items()
    ]
    return [
        *named,
        *(
            {
                "ph": "X",
                "name": _title(event),
                "pid": lanes[_lane(event, names)],
                "tid": 0,
                "ts": round(event["ts"]),
                "dur": round(event["dur"]),
            }
            for event in bars
        ),
    ]


def _lane(event: Mapping[str, Any], names: Mapping[str, str]) -> str:
    return names.get(event["tid"]) or f"process {_id(event)}"


def _process(event: Mapping[str, Any]) -> str:
    """Return the name of the called process, or its class and id; empty if the event does not contain it."""
    name, is_there, _ = _call(event).partition(SEPARATOR)
    if is_there or not name:
        return name
    return f"{name.partition('.')[0]} {_id(event)}"


def _id(event: Mapping[str, Any]) -> str:
    return str(event["tid"]).partition(":")[2][:8]


def _title(event: Mapping[str, Any]) -> str:
    name = _call(event)
    return name.partition(SEPARATOR)[2] or name or str(event["name"])


def _call(event: Mapping[str, Any]) -> str:
    category = str(event["cat"])
    return category.removeprefix(CALL) if category.startswith(CALL) else ""
