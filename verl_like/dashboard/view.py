"""The view of a run at one moment, for a terminal: numbers, curves, and texts without control characters."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from verl_like.config.render import on_one_line
from verl_like.dashboard import notices
from verl_like.dashboard.pace import ENDS, STEP, seconds_left
from verl_like.masking import masked_text
from verl_like.report.advice.run_view import RUNNING, STOPPED
from verl_like.report.panels import ENVIRONMENT, LEARNING, LENGTHS, POLICY, panels
from verl_like.report.run_files import RunFiles
from verl_like.telemetry.run_ledger import PEAKS, PLANNED

NOT_FINISHED = "running or stopped"  # which of the two, a copy does not show
CURVE_SECTIONS = (LEARNING, POLICY, LENGTHS, ENVIRONMENT)
MAX_SCORES = 3  # curves of the first chart; of the others, the first
MAX_WARNINGS = 100  # of the newest
MAX_DRAWN = 1e150
MAX_TEXT = 2000  # characters of a text


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadlineCurve:
    """A metric of a run: its values by step, of which the last is shown as a number."""

    name: str
    steps: list[int]
    values: list[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class TerminalView:
    """A run at one moment.

    Args:
        total_steps: the last step that is planned; None if it is unknown.
        left_s: seconds until its end; None if unknown or if it does not run.
        ended_at: end of the last step, as local time; empty if unknown.
        latest: metrics of the last step.
        series: metric -> step -> value, of all steps.
        problem: why the view is not up to date; empty if it is.
    """

    name: str
    job: str
    status: str
    step: int
    total_steps: int | None
    left_s: float | None
    ended_at: str
    latest: Mapping[str, float]
    series: Mapping[str, Mapping[int, float]]
    curves: list[HeadlineCurve]
    alarms: list[str] = field(default_factory=list)
    stalls: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problem: str = ""

    def with_problem(self, problem: str) -> TerminalView:
        """Return the same view with a reason why it is not up to date."""
        return replace(self, problem=inert(problem))

    @property
    def progress(self) -> str:
        """Status and step."""
        of = f" of {self.total_steps}" if self.total_steps else ""
        return f"{self.status}, step {self.step}{of}"

    @property
    def memory(self) -> str:
        """The largest memory of a worker in the last step, and the planned one; empty if it is unknown."""
        name = next((name for name in PEAKS if name in self.latest), None)
        if name is None:
            return ""
        of = "GPU memory" if name == PEAKS[0] else "memory"
        planned = f" of {self.latest[PLANNED]:.2f} GiB planned" if PLANNED in self.latest else ""
        everybody = self.latest.get("memory/all_rss_gib")
        together = f"; all processes {everybody:.2f} GiB" if everybody is not None else ""
        return f"{of} of the largest worker {self.latest[name]:.2f} GiB{planned}{together}"


def terminal_view(run: RunFiles, *, is_copy: bool = False) -> TerminalView:
    """Return what a terminal shows of a run.

    Args:
        is_copy: whether the files are a copy, which does not show whether a process works on the run.
    """
    status = NOT_FINISHED if is_copy and run.status == STOPPED else run.status
    series = {inert(name): points for name, points in run.series.items()}
    step = max(series.get(STEP) or [run.last_step])
    end = series.get(ENDS, {}).get(step, math.nan)
    return TerminalView(
        name=inert(run.name),
        job=inert(run.job),
        status=inert(status),
        step=run.last_step,
        total_steps=run.total_steps,
        left_s=seconds_left(series, run.total_steps) if status == RUNNING else None,
        ended_at=_local_time(end),
        latest=metrics_at(series, step),
        series=series,
        curves=headline_curves(series),
        alarms=[inert(text) for text in notices.alarms(run, is_open=status == NOT_FINISHED)],
        stalls=[inert(text) for text in notices.stalls(run)],
        warnings=[inert(text) for text in notices.warnings(run, MAX_WARNINGS)],
    )


def metrics_at(series: Mapping[str, Mapping[int, float]], step: int) -> dict[str, float]:
    """Return the metrics of one step that are finite."""
    return {name: points[step] for name, points in series.items() if _is_drawable(points.get(step, math.nan))}


def _is_drawable(value: float) -> bool:
    """Return whether a number and its differences from others are finite."""
    return abs(value) < MAX_DRAWN


def inert(text: str) -> str:
    """Return a text on one line without secrets, whose control characters are visible escapes."""
    return on_one_line(masked_text(text[:MAX_TEXT]))


def _local_time(unix_s: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
    except (ValueError, OverflowError, OSError):  # NaN, or no time at all
        return ""


def headline_curves(series: Mapping[str, Mapping[int, float]]) -> list[HeadlineCurve]:
    """Return the curves that matter most: the scores, then one of each chart of the report that is not constant."""
    last = max((step for points in series.values() for step in list(points)[-1:]), default=0)
    found: list[HeadlineCurve] = []
    for panel in panels(series):
        if panel["section"] not in CURVE_SECTIONS:
            continue
        curves = [curve for name in panel["metrics"] if (curve := _curve(name, series[name])).values]
        varied = [curve for curve in curves if curve.steps == [last] or len(set(curve.values)) > 1]
        found += varied[:1] if found else curves[:MAX_SCORES]
    return found


def _curve(name: str, points: Mapping[int, float]) -> HeadlineCurve:
    finite = {step: value for step, value in points.items() if _is_drawable(value)}
    return HeadlineCurve(name=name, steps=list(finite), values=list(finite.values()))
