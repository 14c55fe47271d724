"""The table of rules, and the advice that they give on a run."""

from __future__ import annotations

from verl_like.report.advice.asynchrony import ASYNCHRONY, DROPPED
from verl_like.report.advice.collapses import COLLAPSES, OVERFITTING
from verl_like.report.advice.learning_signal import CONSTANT_SCORES, LITTLE_SIGNAL, NO_SIGNAL
from verl_like.report.advice.lengths import CUT_OFF, LENGTHS_EXPLODE
from verl_like.report.advice.liveness import LIVENESS
from verl_like.report.advice.memory import LEAKS, MEMORY
from verl_like.report.advice.rewards import FAILURES, OF_GRADERS
from verl_like.report.advice.rule import ALARM, Advisory, Rule
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.speed import SPEED
from verl_like.report.advice.stability import CLIPPING, NOT_FINITE, STABILITY

# The sequence is that of the advice. Alarms come first, and causes before their effects: a cause that is removed
# removes the effects too.
RULES: tuple[Rule, ...] = (
    *LIVENESS,
    NOT_FINITE,
    *FAILURES,
    *STABILITY,
    DROPPED,
    *COLLAPSES,
    LENGTHS_EXPLODE,
    CONSTANT_SCORES,
    NO_SIGNAL,
    *LEAKS,
    *LITTLE_SIGNAL,
    CLIPPING,
    CUT_OFF,
    OVERFITTING,
    *OF_GRADERS,
    *ASYNCHRONY,
    *MEMORY,
    *SPEED,
)


def advisories(view: RunView) -> list[Advisory]:
    """Return the advice on a run: its alarms, or if there are none, what could be tuned; most important first."""
    alarms = _found(view, [rule for rule in RULES if rule.level == ALARM])
    return alarms or _found(view, [rule for rule in RULES if rule.level != ALARM])


def _found(view: RunView, rules: list[Rule]) -> list[Advisory]:
    return [advice for rule in rules if (advice := rule.advisory(view)) is not None]


def markdown() -> str:
    """Return the rules as a Markdown table."""
    lines = ["| advice | level | what it compares | threshold | what to change |", "|---|---|---|---|---|"]
    for rule in RULES:
        change = ", ".join(f"`{option}`" for option in rule.change)
        lines.append(f"| {rule.title} | {rule.level} | {rule.sees} | {rule.threshold} | {change} |")
    return "\n".join(lines) + "\n"
