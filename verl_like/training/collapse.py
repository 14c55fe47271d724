"""Warn if a run's score or entropy collapses: the value, the earlier value, and a remedy."""

from __future__ import annotations

import logging
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
    """Compare the newest steps of a run with its first and its best ones; report each collapse once."""

    _newest: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))  # score, entropy
    _first: _Window | None = None
    _best: _Window | None = None
    _least: float = float("inf")
    _most: float = float("-inf")
    _reported: set[str] = field(default_factory=set)

    def restore(self, series: Mapping[str, Mapping[int, float]]) -> None:
        """Take the steps of a run that continues, by metric and step; do not report their collapses again."""
        for step in sorted(series.get("reward/score_mean", {})):
            self._take(step, {name: values[step] for name, values in series.items() if step in values})

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step's metrics, and warn if they show a collapse. Steps without scores are ignored."""
        if "reward/score_mean" not in metrics:
            return
        for problem in self._take(step, metrics):
            log.warning("%s", problem)

    def _take(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        score, entropy = metrics["reward/score_mean"], metrics["rollout/entropy_mean"]
        self._least = min(self._least, metrics.get("reward/score_min", score))
        self._most = max(self._most, metrics.get("reward/score_max", score))
        self._newest.append((score, entropy))
        if len(self._newest) < WINDOW:
            return []
        scores, entropies = zip(*self._newest, strict=True)
        now = _Window(step, fmean(scores), pstdev(scores), fmean(entropies))
        first = self._first = self._first or now
        best = self._best = now if self._best is None or now.score > self._best.score else self._best
        found = {"score": self._score_problem(now, first, best), "entropy": self._entropy_problem(now, first, best)}
        new = [problem for name, problem in found.items() if problem and name not in self._reported]
        self._reported |= {name for name, problem in found.items() if problem}
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
