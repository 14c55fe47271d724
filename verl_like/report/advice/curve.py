"""A metric over the steps of a run: its finite points, and windows of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean, median, pstdev

WINDOW = 10  # steps whose median counts: one noisy step decides nothing
MIN_STEPS = 5  # of a window; with fewer, nothing is said


@dataclass(frozen=True, slots=True)
class Curve:
    """The finite values of a metric, sorted by step. The statistics need at least one point."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, metric: str, points: Mapping[int, float]) -> Curve:
        found = sorted((step, value) for step, value in points.items() if math.isfinite(value))
        return cls(metric, tuple(step for step, _ in found), tuple(value for _, value in found))

    def __len__(self) -> int:
        return len(self.steps)

    def slice(self, start: int | None, stop: int | None) -> Curve:
        """Return the points from ``start`` to before ``stop``, counted as in a list."""
        return Curve(self.metric, self.steps[start:stop], self.values[start:stop])

    def newest(self, count: int = WINDOW) -> Curve:
        return self.slice(max(len(self) - count, 0), None)

    def first(self) -> Curve:
        return self.slice(None, WINDOW)

    def at(self, steps: Collection[int]) -> Curve:
        """Return the points at those of the steps that the curve has."""
        found = [(step, value) for step, value in zip(self.steps, self.values, strict=True) if step in steps]
        return Curve(self.metric, tuple(step for step, _ in found), tuple(value for _, value in found))

    def quarters(self) -> list[float]:
        """Return the medians of four equal parts; the curve needs at least four points."""
        size = len(self) // 4
        return [self.slice(len(self) - (4 - part) * size, len(self) - (3 - part) * size).median for part in range(4)]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def std(self) -> float:
        """The population standard deviation from step to step."""
        return pstdev(self.values)

    @property
    def total(self) -> float:
        return math.fsum(self.values)

    @property
    def last_step(self) -> int:
        return self.steps[-1]

    @property
    def span(self) -> str:
        """The steps in words, such as "steps 41 to 50"."""
        first, last = self.steps[0], self.steps[-1]
        return f"step {last}" if first == last else f"steps {first} to {last}"
