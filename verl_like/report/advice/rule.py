"""A rule of the advisories, what it finds, and the advisory made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from verl_like.report.advice.run_view import RunView

Level = Literal["alarm", "tuning"]
ALARM: Level = "alarm"
TUNING: Level = "tuning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Advisory:
    """Advice on a run.

    Args:
        level: "alarm" if something is wrong with the run, "tuning" if it could be faster or learn more.
        text: sentences with the metric, its number and the option to change.
        step: the step to read first.
        knob: an override of the command line that follows the advice.
    """

    level: Level
    title: str
    text: str
    metric: str | None = None
    step: int | None = None
    knob: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """A finding of a rule in a run; the fields are those of :class:`Advisory`."""

    text: str
    metric: str | None = None
    step: int | None = None
    knob: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A row of the table of rules.

    Args:
        title: of the advisory.
        sees: what the rule compares, in words.
        threshold: the limit, in words and numbers.
        change: the options that the advice names.
        find: returns the symptom, or None.
    """

    level: Level
    title: str
    sees: str
    threshold: str
    change: tuple[str, ...]
    find: Callable[[RunView], Symptom | None]

    def advisory(self, view: RunView) -> Advisory | None:
        """Return the advice on a run, or None."""
        found = self.find(view)
        if found is None:
            return None
        return Advisory(
            level=self.level, title=self.title, text=found.text, metric=found.metric, step=found.step, knob=found.knob
        )
