"""Findings of a check, and the outcome derived from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HELD, SHORT, SKIPPED, FAILED = "held", "fell short", "skipped", "failed"


class Skip(Exception):
    """The check cannot run on this machine; the message gives the reason."""


@dataclass(slots=True)
class Findings:
    """Figures, problems and notes of a check.

    Args:
        figures: values by name, which ends in the unit ("wake_s"); None if not measured, and a note gives the reason.
        problems: violated expectations: found and expected.
        notes: what was left out, with the reason.
    """

    figures: dict[str, float | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(
        self, name: str, value: float | None, *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """Record a figure and check its bounds; NaN violates every bound."""
        self.figures[name] = value
        if value is None:
            return
        if at_most is not None and not value <= at_most:
            self.problems.append(f"{formatted(name, value)}, expected at most {at_most:.3g}")
        if at_least is not None and not value >= at_least:
            self.problems.append(f"{formatted(name, value)}, expected at least {at_least:.3g}")

    def must(self, is_so: bool, problem: str) -> None:
        """Record ``problem`` unless ``is_so``."""
        if not is_so:
            self.problems.append(problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of a check.

    Args:
        verdict: ``HELD``, ``SHORT``, ``SKIPPED`` or ``FAILED``.
        why: the reason if the verdict is not ``HELD``.
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


# End of a name -> unit as printed. The first match counts.
UNITS = {"_gib_per_s": "GiB/s", "_tokens_per_s": "tokens/s", "_gib": "GiB", "_nats": "nats", "_s": "s"}


def formatted(name: str, value: float) -> str:
    """Format a figure: ``wake_s`` of 0.25 is "wake 0.25 s"."""
    ending = next((each for each in UNITS if name.endswith(each)), "")
    unit = f" {UNITS[ending]}" if ending else ""
    return f"{name.removesuffix(ending).replace('_', ' ')} {value:.3g}{unit}"
