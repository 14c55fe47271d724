"""Judge the scores of a run: their range, whether the task is learnt, and metrics that grow without a gain."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.report.advice.curve import WINDOW, Curve
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.wording import median_of, number
from verl_like.telemetry.collapse import HIGHEST, LEARNT_FRAC, LOWEST, SCORE

# A gain is at least this part of the way from the lowest to the highest score, and of the deviation from step to step,
# which is about the standard error of the difference of two windows.
MIN_GAIN_OF_RANGE, MIN_GAIN_STDS = 0.02, 0.5


def score_range(view: RunView) -> tuple[float, float] | None:
    """Return the lowest and the highest score of any response so far; None without scores."""
    scores = view.curve(SCORE)
    if not scores:
        return None
    lowest, highest = view.curve(LOWEST) or scores, view.curve(HIGHEST) or scores
    return min(lowest.values), max(highest.values)


def is_learnt(view: RunView) -> bool:
    """Return whether the newest scores are near the highest one, so that little is left to learn."""
    found, now = score_range(view), view.window(SCORE)
    if found is None or now is None:
        return False
    least, most = found
    return most > least and now.mean >= least + LEARNT_FRAC * (most - least)


@dataclass(frozen=True, slots=True)
class Growth:
    """Two windows of a metric that grew, and the mean scores in both."""

    before: Curve
    now: Curve
    score_before: float
    score_now: float

    def __str__(self) -> str:
        return (
            f"{median_of(self.now)} and was {number(self.before.median)} over {self.before.span}, while {SCORE} went "
            f"from {number(self.score_before)} to {number(self.score_now)}"
        )


def growth_without_gain(view: RunView, curve: Curve, factor: float) -> Growth | None:
    """Return how a metric grew by ``factor`` or more while the score did not rise; None if it did not.

    The newest window is compared with the first one and with the one in the middle of the run: the score may have
    risen before the middle only. The run needs two windows for the first comparison and four for the second.

    Args:
        curve: of positive values.
    """
    scores, found = view.curve(SCORE), score_range(view)
    if found is None or len(curve) < 2 * WINDOW or view.window(curve.metric) is None:
        return None
    least, most = found
    now, middle = curve.newest(), len(curve) // 2
    earlier = [curve.first()] + ([curve.slice(middle - WINDOW, middle)] if len(curve) >= 4 * WINDOW else [])
    scores_now = scores.at(frozenset(now.steps))
    for before in earlier:
        scores_then = scores.at(frozenset(before.steps))
        if not scores_now or not scores_then or now.median < factor * before.median:
            continue
        noise = MIN_GAIN_STDS * max(scores_now.std, scores_then.std)
        if scores_now.mean - scores_then.mean <= max(noise, MIN_GAIN_OF_RANGE * (most - least)):
            return Growth(before, now, scores_then.mean, scores_now.mean)
    return None
