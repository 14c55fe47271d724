"""Warn if a run's score or entropy collapses: the value, the earlier value, and a remedy."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, pstdev

WINDOW = 10  # steps that are compared by their mean
MIN_LOSS_FRAC = 0.75  # of the gain of the score
MIN_LOSS_OF_RANGE = 0.25  # of the way from the lowest to the highest score of any response
MIN_LOSS_STDS = 4.0  # of the score from step to step in its best window
MAX_ENTROPY_FRAC = 0.1  # of the entropy of the first window
LEARNT_FRAC = 0.9  # of the same way: little is left to learn

SCORE, ENTROPY = "reward/score_mean", "rollout/entropy_mean"
LOWEST, HIGHEST = "reward/score_min", "reward/score_max"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Window:
    """The means of some steps in a row."""

    last: int
    score: float
    score_std: float
    entropy: float

    def __str__(self) -> str:
        return f"steps {self.last - WINDOW + 1} to {self.last}"


@dataclass
class CollapseWatch:
    """Compare the newest steps of a run with its first and its best ones; report each collapse once.

    Attributes:
        present: the collapses that the newest steps show, reported before or not: metric -> message.
    """

    _newest: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))  # score, entropy
    _first: _Window | None = None
    _best: _Window | None = None
    _least: float = float("inf")
    _most: float = float("-inf")
    _reported: set[str] = field(default_factory=set)
    present: dict[str, str] = field(default_factory=dict)

    def restore(self, series: Mapping[str, Mapping[int, float]]) -> None:
        """Take the steps of a run that continues, by metric and step; do not report their collapses again."""
        read = {name: series[name] for name in (SCORE, ENTROPY, LOWEST, HIGHEST) if name in series}
        for step in sorted(series.get(SCORE, {})):
            self._take(step, {name: values[step] for name, values in read.items() if step in values})

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step's metrics, and warn if they show a collapse.

        Steps are ignored if their score or entropy is missing or not finite.
        """
        for problem in self._take(step, metrics):
            log.warning("%s", problem)

    def _take(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        score, entropy = metrics.get(SCORE, math.nan), metrics.get(ENTROPY, math.nan)
        if not math.isfinite(score) or not math.isfinite(entropy):
            return []
        self._least = min(self._least, metrics.get(LOWEST, score))
        self._most = max(self._most, metrics.get(HIGHEST, score))
        self._newest.append((score, entropy))
        if len(self._newest) < WINDOW:
            return []
        scores, entropies = zip(*self._newest, strict=True)
        now = _Window(step, fmean(scores), pstdev(scores), fmean(entropies))
        first = self._first = self._first or now
        best = self._best = now if self._best is None or now.score > self._best.score else self._best
        found = {SCORE: self._score_problem(now, first, best), ENTROPY: self._entropy_problem(now, first, best)}
        self.present = {metric: problem for metric, problem in found.items() if problem}
        new = [problem for metric, problem in self.present.items() if metric not in self._reported]
        self._reported |= self.present.keys()
        return new

    def _score_problem(self, now: _Window, first: _Window, best: _Window) -> str:
        lost, gained = best.score - now.score, best.score - first.score
        least = MIN_LOSS_OF_RANGE * (self._most - self._least)
        if lost <= max(MIN_LOSS_FRAC * gained, MIN_LOSS_STDS * best.score_std, least):
            return ""
        return (
            f"the score has collapsed: reward/score_mean is {now.score:.3g} over {now}, and was {best.score:.3g} over "
            f"{best}. Expected a score that rises or stays. Read samples/step_{now.last}.jsonl; then lower "
            f"actor.optim.lr or actor.clip_ratio_high, or add a KL term (actor.kl_loss_coef), and branch off an "
            f"earlier checkpoint with trainer.resume=PATH and another trainer.experiment_name."
        )

    def _entropy_problem(self, now: _Window, first: _Window, best: _Window) -> str:
        is_learnt = now.score >= self._least + LEARNT_FRAC * (self._most - self._least)
        is_rising = best.last > now.last - WINDOW and best.score - first.score > best.score_std
        if now.entropy > MAX_ENTROPY_FRAC * first.entropy or is_learnt or is_rising or first.entropy <= 0:
            return ""
        return (
            f"the entropy has collapsed: rollout/entropy_mean is {now.entropy:.2g} nats per token over {now}, and was "
            f"{first.entropy:.2g} over {first}, while the score is {now.score:.3g} and single responses got "
            f"{self._most:.3g}. The responses to a prompt hardly differ any more, so little is learnt. Raise "
            f"rollout.temperature, actor.clip_ratio_high or actor.entropy_coef, or lower actor.optim.lr, and branch "
            f"off a checkpoint from before with trainer.resume=PATH and another trainer.experiment_name."
        )
