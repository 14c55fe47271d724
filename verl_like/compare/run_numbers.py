"""The headline numbers of a run: final and best value, and the mean over the last tenth of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from verl_like.report.content import HEADLINES
from verl_like.report.run_files import RunFiles

SPEED = ("time/step_s", "perf/tokens_per_s")
LOWER_IS_BETTER = ("*/loss", "time/*")
LAST_FRAC = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class RunNumbers:
    """A metric of a run.

    Args:
        final, final_step: the last finite value.
        best, best_step: the highest value, or the lowest of a loss or a time.
        last_tenth: mean over the last tenth of the run's steps, or the final value if none of them has the metric.
    """

    final: float
    final_step: int
    best: float
    best_step: int
    last_tenth: float


def headline_names(runs: Sequence[RunFiles]) -> list[str]:
    """Return the metrics that are compared: those at the top of a report, then the speed."""
    names = dict.fromkeys(name for run in runs for name in run.series)
    return [name for pattern in (*HEADLINES, *SPEED) for name in names if fnmatchcase(name, pattern)]


def numbers_of(run: RunFiles, name: str) -> RunNumbers | None:
    """Return the numbers of a metric; None if the run has no finite value of it."""
    points = run.points(name)
    if not points:
        return None
    choose = min if any(fnmatchcase(name, pattern) for pattern in LOWER_IS_BETTER) else max
    best_step = choose(points, key=points.__getitem__)
    final_step = next(reversed(points))
    return RunNumbers(
        final=points[final_step],
        final_step=final_step,
        best=points[best_step],
        best_step=best_step,
        last_tenth=_last_mean(points, run.last_step),
    )


def _last_mean(points: Mapping[int, float], last_step: int) -> float:
    values = list(points.values())
    last = [value for step, value in points.items() if step > (1 - LAST_FRAC) * last_step] or values[-1:]
    return sum(last) / len(last)
