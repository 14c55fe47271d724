"""Shares of a run's time, for runs that are long enough to be tuned."""

from __future__ import annotations

from verl_like.report.advice.run_view import STEP_S, RunView

MIN_RUN_S = 60.0  # of steps; a shorter run is not worth tuning


def step_seconds(view: RunView) -> float:
    """Return the seconds of all steps, or 0 of a run that is too short to be judged."""
    total = view.curve(STEP_S).total
    return total if total >= MIN_RUN_S and view.window(STEP_S) is not None else 0.0


def share_of_step(view: RunView, metric: str) -> float:
    """Return the share of a step that a stage takes over the newest steps, and 0 for a run that is too short."""
    part, whole = view.window(metric), view.window(STEP_S)
    if part is None or whole is None or not step_seconds(view) or whole.total <= 0:
        return 0.0
    return part.total / whole.total
