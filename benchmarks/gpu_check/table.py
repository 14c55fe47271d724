"""The table and the JSON of the command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.gpu_check.verdict import Outcome, in_words

# What the JSON has of its own; the other figures are under the check that found them.
KEYS = ("mfu", "sync_gib_per_s", "wake_s", "sleep_freed_gib", "log_prob_gap_mean", "peak_vs_plan")


def line(outcome: Outcome) -> str:
    """A row of the table; why it did not hold comes first."""
    figures = (in_words(name, value) for name, value in outcome.figures.items() if value is not None)
    told = "; ".join(part for part in (outcome.why, ", ".join(figures), *outcome.notes) if part)
    return f"{outcome.name:<16} {outcome.verdict:<10} {outcome.seconds:>5.0f} s  {told}"


def summary(outcomes: Iterable[Outcome], *, device: str, seconds: float) -> dict[str, object]:
    """The JSON object; a key that no check has found is null."""
    played = list(outcomes)
    figures = {outcome.name: _rounded(outcome.figures) for outcome in played if outcome.figures}
    found = {name: value for of in figures.values() for name, value in of.items()}
    return {
        **{key: found.get(key) for key in KEYS},
        "verdicts": {outcome.name: outcome.verdict for outcome in played},
        "whys": {outcome.name: outcome.why for outcome in played if outcome.why},
        "figures": figures,
        "device": device,
        "seconds": round(seconds, 1),
    }


def _rounded(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else float(f"{value:.4g}") for name, value in figures.items()}
