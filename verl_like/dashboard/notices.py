"""Collect what needs attention in a run: alarms, reports of the watchdog, warnings of the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from verl_like.report.advice import advisories
from verl_like.report.advice.rule import ALARM
from verl_like.report.advice.run_view import INTERRUPTED
from verl_like.report.content import view_of
from verl_like.report.run_files import RunFiles

MAX_LOG_BYTES = 2**17  # read from the end of a log
_WARNING = re.compile(r"\d{4}-\d\d-\d\d (?P<time>\d\d:\d\d:\d\d)\S* (?P<level>WARNING|ERROR|CRITICAL) (?P<text>.+)")


def alarms(run: RunFiles, *, is_open: bool = False) -> list[str]:
    """Return the alarms of the report's advice, the most important first.

    Args:
        is_open: whether it is unknown if the run still works; alarms on that are left out.
    """
    view = view_of(run, {})  # no alarm reads the ledger, which may be large
    if is_open:
        view = replace(view, status=INTERRUPTED, silent_s=None)
    found = [advice for advice in advisories(view) if advice.level == ALARM]
    return [f"{advice.title}{f' ({advice.knob})' if advice.knob else ''}: {advice.text}" for advice in found]


def stalls(run: RunFiles) -> list[str]:
    """Return time and verdict of each report of the watchdog, the oldest first."""
    return [f"{_readable_time(stall['at'])} {stall['verdict']}" for stall in run.stalls()]


def _readable_time(name: str) -> str:
    found = re.fullmatch(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)", name)
    return "{}-{}-{} {}:{}:{}".format(*found.groups()) if found else name


def warnings(run: RunFiles, number: int) -> list[str]:
    """Return the last warnings and errors in the driver's log of the newest start, without their tracebacks."""
    folder = run.newest_logs
    return [] if folder is None or number < 1 else list(_warnings(folder / "driver.log"))[-number:]


def _warnings(path: Path) -> Iterator[str]:
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(max(file.seek(0, 2) - MAX_LOG_BYTES, 0))
        text = file.read().decode("utf-8", "replace")
    for line in text.split("\n"):
        if found := _WARNING.match(line):
            yield f"{found['time']} {found['level']} {found['text']}"
