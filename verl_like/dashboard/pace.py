"""The time that a run's next steps take, by the times that the run itself has recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

ENDS, STEP = "progress/unix_s", "time/step_s"
# Parts of the time between the ends of two steps: metric -> whether the earlier of the two steps reports it.
PARTS = {STEP: False, "time/validation_s": True, "checkpoint/wait_s": False}
MAX_STEPS = 100  # the newest, so that the estimate follows a run whose responses grow longer
SLACK_S = 5.0  # time between two steps that no metric explains; more is a pause between two starts

Series = Mapping[str, Mapping[int, float]]  # metric -> step -> value


def seconds_left(series: Series, total_steps: int | None) -> float | None:
    """Estimate the seconds from the end of the last step to the end of the run; None if they cannot be known."""
    pace, steps = seconds_per_step(series), series.get(ENDS) or series.get(STEP)
    if pace is None or total_steps is None or not steps:
        return None
    return pace * max(total_steps - max(steps), 0)


def seconds_per_step(series: Series) -> float | None:
    """Return the mean time between the ends of neighbouring steps, validations and checkpoints included.

    The clock of this machine plays no part. While a run was stopped, its steps count with the time that they took.
    """
    ends = [(step, end) for step, end in series.get(ENDS, {}).items() if math.isfinite(end)][-MAX_STEPS - 1 :]
    seconds = [_between(series, first, second) for first, second in pairwise(ends)]
    if not seconds:  # one step, or a job without times
        known = [value for value in series.get(STEP, {}).values() if math.isfinite(value)][-MAX_STEPS:]
        return sum(known) / len(known) if known else None
    return sum(seconds) / len(seconds)


def _between(series: Series, first: tuple[int, float], second: tuple[int, float]) -> float:
    """Return the seconds per step from one end to the other, without a pause between two starts of the run."""
    passed = second[1] - first[1]
    parts = (series.get(name, {}).get(first[0] if is_of_first else second[0]) for name, is_of_first in PARTS.items())
    known = sum(value for value in parts if value is not None and math.isfinite(value))
    is_known = math.isfinite(series.get(STEP, {}).get(second[0], math.nan))
    is_pause = is_known and not 0.0 <= passed <= 2 * known + SLACK_S
    return known if is_pause else passed / (second[0] - first[0])
