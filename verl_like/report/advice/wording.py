"""Words that the texts of all rules share: percentages, options with their values, overrides."""

from __future__ import annotations

from collections.abc import Mapping

from verl_like.config.options import options
from verl_like.report.advice.curve import Curve
from verl_like.report.advice.run_view import RunView

LOWER_LR = 0.3  # half an order of magnitude, the usual step of a search
LR = "actor.optim.lr"


def percent(frac: float) -> str:
    return f"{100 * frac:.0f} %"


def seconds(value: float) -> str:
    """Return a time in the largest unit of which it has at least two."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s"


def number(value: float) -> str:
    """Return three digits of a number, or all digits before the point."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def median_of(curve: Curve) -> str:
    """Return "rollout/length_finish_frac is 0.31 over steps 41 to 50"."""
    return f"{curve.metric} is {number(curve.median)} over {curve.span}"


def named(view: RunView, option: str) -> str:
    """Return an option with its current value, "reward.timeout_s (now 10)", or alone if the value is unknown."""
    value = view.option(option)
    shown = f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else value
    return option if value in (None, "") else f"{option} (now {shown})"


def named_above(view: RunView, least: Mapping[str, float]) -> str:
    """Return the options that can be lowered, joined by "or": those above their least value, or of unknown value."""
    can = [option for option, low in least.items() if (value := view.option(option)) is None or value > low]
    return " or ".join(named(view, option) for option in can)


def scaled(view: RunView, option: str, factor: float) -> str | None:
    """Return an override that multiplies an option, or None if its value is unknown, "auto", 0 or not changed by it."""
    value = view.option(option)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    kind = options()[option].kind
    product = max(round(value * factor), 1) if kind is int else float(f"{value * factor:.6g}")
    return None if product == value else f"{option}={product if kind is int else f'{product:g}'}"


def changed(view: RunView, option: str, value: str) -> str | None:
    """Return the override ``option=value``, or None if the option has this value already."""
    now = view.option(option)
    shown = str(now).lower() if isinstance(now, bool) else str(now)
    return None if shown == value else f"{option}={value}"
