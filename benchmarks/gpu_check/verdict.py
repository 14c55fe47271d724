"""What a check finds, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HELD, SHORT, SKIPPED, FAILED = "held", "fell short", "skipped", "failed"


class Skip(Exception):
    """There is nothing to check here; the message says why."""


@dataclass(slots=True)
class Findings:
    """What a check has found.

    Args:
        figures: by name, which ends in the unit ("wake_s"); None where there is none, and a note says why.
        problems: what is not as it must be: found and expected.
        notes: what was left out, and why.
    """

    figures: dict[str, float | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(
        self, name: str, value: float | None, *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """A figure, and its bounds; NaN is within none."""
        self.figures[name] = value
        if value is None:
            return
        if at_most is not None and not value <= at_most:
            self.problems.append(f"{in_words(name, value)}, expected at most {at_most:.3g}")
        if at_least is not None and not value >= at_least:
            self.problems.append(f"{in_words(name, value)}, expected at least {at_least:.3g}")

    def must(self, is_so: bool, problem: str) -> None:
        """Something that is no number."""
        if not is_so:
            self.problems.append(problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A check that is over.

    Args:
        verdict: one of the four above.
        why: of one that did not hold.
    """

    name: str
    verdict: str
    seconds: float
    why: str = ""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def is_well(self) -> bool:
        return self.verdict in (HELD, SKIPPED)


# The end of a name -> the unit as people write it. The first that fits counts.
UNITS = {"_gib_per_s": "GiB/s", "_tokens_per_s": "tokens/s", "_gib": "GiB", "_nats": "nats", "_s": "s"}


def in_words(name: str, value: float) -> str:
    """``wake_s`` of 0.25 is "wake 0.25 s"."""
    ending = next((each for each in UNITS if name.endswith(each)), "")
    unit = f" {UNITS[ending]}" if ending else ""
    return f"{name.removesuffix(ending).replace('_', ' ')} {value:.3g}{unit}"
