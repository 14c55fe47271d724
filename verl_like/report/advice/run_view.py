"""The view of one run that the rules judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_like.config.options import value_of
from verl_like.config.schema import Config
from verl_like.report.advice.curve import MIN_STEPS, WINDOW, Curve

STEP_S = "time/step_s"  # every job reports it once per step
FINISHED, INTERRUPTED, RUNNING, STOPPED = "finished", "interrupted", "running", "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """The records of a run as plain data; a field that is unknown keeps its default.

    Args:
        series: metric -> step -> value, as ``read_metrics`` returns it: NaN where a value was not finite.
        config: the recorded configuration; None if it is unreadable.
        ledger: process -> stage -> seconds, summed over the rows of ``ledger.jsonl``.
        num_stalls: reports of the watchdog in the folder ``stalls/``.
        first_stall: the verdict of the first of them.
        status: "finished", "interrupted" (by a user), "running", or "stopped": the run neither reached its last step
            nor ended by request, and no process works on it.
        total_steps: planned number of steps.
        silent_s: of a running run, seconds since it wrote its newest metrics.
        num_failed_samples: rows of ``samples/reward_failures.jsonl``.
        records_gib: size of the records that ``trainer.max_records_gib`` limits.
    """

    series: Mapping[str, Mapping[int, float]]
    config: Config | None = None
    ledger: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    num_stalls: int = 0
    first_stall: str = ""
    status: str = FINISHED
    total_steps: int | None = None
    silent_s: float | None = None
    num_failed_samples: int = 0
    records_gib: float = 0.0

    def curve(self, metric: str) -> Curve:
        """Return the finite points of a metric; an empty curve if there are none."""
        return Curve.of(metric, self.series.get(metric, {}))

    def window(self, metric: str) -> Curve | None:
        """Return a metric over the newest ``WINDOW`` steps of the run.

        None if fewer than ``MIN_STEPS`` of these report it, so that rules say nothing about a run that has just begun,
        nor about a metric that belongs to an earlier part of it.
        """
        points = self.series.get(metric, {})
        newest = sorted(self.series.get(STEP_S, {}))[-WINDOW:]
        found = Curve.of(metric, {step: points[step] for step in newest if step in points})
        return found if len(found) >= MIN_STEPS else None

    def num_rows(self, window: Curve) -> float:
        """Return the responses generated in the steps of a window; 0 if unknown."""
        tokens, lengths = self.curve("perf/response_tokens"), self.curve("rollout/response_tokens_mean")
        mean_of = dict(zip(lengths.steps, lengths.values, strict=True))
        found = tokens.at(frozenset(window.steps))
        return sum(
            value / mean_of[step]
            for step, value in zip(found.steps, found.values, strict=True)
            if mean_of.get(step, 0.0) > 0
        )

    def option(self, name: str) -> Any:
        """Return the value of an option; None if the configuration is unknown."""
        return None if self.config is None else value_of(self.config, name)
