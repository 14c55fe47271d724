"""The table and the JSON of the command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.gpu_check.verdict import Outcome, formatted

# Figures at the top level of the JSON; all figures are also listed under their check.
KEYS = ("mfu", "sync_gib_per_s", "wake_s", "sleep_freed_gib", "log_prob_gap_mean", "peak_vs_plan")


def line(outcome: Outcome) -> str:
    """Return a row of the table: the reason for the verdict first, then figures and notes."""
    figures = (formatted(name, value) for name, value in outcome.figures.items() if value is not None)
    details = "; ".join(part for part in (outcome.why, ", ".join(figures), *outcome.notes) if part)
    return f"{outcome.name:<16} {outcome.verdict:<10} {outcome.seconds:>5.0f} s  {details}"


def summary(outcomes: Iterable[Outcome], *, device: str, seconds: float) -> dict[str, object]:
    """Return the JSON object; a key that no check has measured is None."""
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
