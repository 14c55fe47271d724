"""The lines of ``verl-like watch --follow``: each step, warning, stall and alarm once, as it comes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verl_like.dashboard.picture import MAX_WARNINGS
from verl_like.dashboard.view import TerminalView, metrics_at
from verl_like.telemetry.console_parts import step_line

MAX_CURVES = 3  # of a step's line
_NUMBER = re.compile(r"\d[\d.,]*")


class FollowedLines:
    """Remembers what of a run was printed; the first lines are those of its last step and its newest warnings."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._status = ""
        self._known: set[str] = set()

    def new(self, view: TerminalView) -> Iterator[str]:
        """Yield what the view has and earlier ones had not."""
        yield from self._steps(view)
        yield from self._notices(view)
        if view.status != self._status:
            self._status = view.status
            yield f"{view.name}: {view.progress}"

    def _steps(self, view: TerminalView) -> Iterator[str]:
        steps = sorted(set[int]().union(*view.series.values()))
        if self._step is None:
            self._step = steps[-2] if len(steps) > 1 else -1
        elif steps and steps[-1] < self._step:
            self._step = steps[-1]
            yield f"{view.name}: continued from step {steps[-1]}"
        headlines = [(curve.name, curve.name) for curve in view.curves[:MAX_CURVES]]
        for step in steps:
            if step > self._step:
                left, metrics = view.left_s if step == steps[-1] else None, metrics_at(view.series, step)
                yield step_line(metrics, headlines, step=step, total_steps=view.total_steps, left=left)
        self._step = steps[-1] if steps else self._step

    def _notices(self, view: TerminalView) -> Iterator[str]:
        warnings = view.warnings if self._status else view.warnings[-MAX_WARNINGS:]
        # The numbers in an alarm change with each step; the alarm is the same.
        found = [(_NUMBER.sub("#", text), f"alarm: {text}") for text in view.alarms]
        found += [(text, f"stall: {text}") for text in view.stalls]
        found += [(text, f"log: {text}") for text in warnings]
        found += [(view.problem, f"not up to date: {view.problem}")] if view.problem else []
        for key, line in found:
            if key not in self._known:
                self._known.add(key)
                yield line
        self._known.update(view.warnings)
