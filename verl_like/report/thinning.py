"""Thin long series for drawing: the first and the last value stay, and the extremes of each bucket of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MAX_POINTS = 2000  # of a curve; wide screens have 2,000 to 4,000 pixels
DIGITS = 6  # significant


def thinned(points: Mapping[int, float]) -> tuple[list[int], list[float | None]]:
    """Return steps and values, about ``MAX_POINTS`` of many; a value that is not finite becomes None.

    Args:
        points: step -> value, sorted by step.
    """
    steps, values = list(points), list(points.values())
    if len(steps) > MAX_POINTS:
        ends = {0, len(steps) - 1}  # the page shows the last value as a number
        kept = sorted(ends.union(_extremes(values, num_buckets=MAX_POINTS // 2)))
        steps, values = [steps[i] for i in kept], [values[i] for i in kept]
    return steps, [rounded(value) for value in values]


def _extremes(values: Sequence[float], num_buckets: int) -> list[int]:
    """Return the positions of the smallest and the largest value of each bucket; of one with NaN, a NaN's too."""
    kept: list[int] = []
    for number in range(num_buckets):
        start, end = number * len(values) // num_buckets, (number + 1) * len(values) // num_buckets
        finite = [i for i in range(start, end) if math.isfinite(values[i])]
        others = [i for i in range(start, end) if not math.isfinite(values[i])]
        chosen = {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)} if finite else set()
        kept += sorted(chosen | set(others[:1]))
    return kept


def rounded(value: float) -> float | None:
    """Return a number with ``DIGITS`` significant digits; None if it is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
