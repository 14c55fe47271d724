"""Functions that declare an option with default, sentence, unit and check."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

Check = Callable[[Any], bool]


def option(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    expected: str = "",
) -> Any:
    """Return a dataclass field that carries its documentation and its check.

    Args:
        default: the value if the user sets none; lists and dicts are copied for each instance.
        doc: one sentence for the user.
        unit: "tokens", "seconds", "GiB", ...
        choices: the allowed values, if the option is an enumeration.
        check: returns true for valid values; ``expected`` describes them in words.
    """
    metadata = {"doc": doc, "unit": unit, "choices": choices, "check": check, "expected": expected}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def positive(default: Any, doc: str, *, unit: str = "") -> Any:
    return option(default, doc, unit=unit, check=lambda v: 0 < v < math.inf, expected="a number above 0")


def non_negative(default: Any, doc: str, *, unit: str = "") -> Any:
    return option(default, doc, unit=unit, check=lambda v: 0 <= v < math.inf, expected="a number of at least 0")


def steps_between(doc: str) -> Any:
    return option(0, doc, unit="steps", check=lambda v: v >= -1, expected="a number of at least -1")


def switch(doc: str) -> Any:
    return option("auto", doc, choices=("auto", "true", "false"))


def is_on(value: str, *, auto: bool) -> bool:
    """Return whether a :func:`switch` is on; ``auto`` is what this value means."""
    return {"true": True, "false": False}.get(value, auto)


def auto_or_number(doc: str, *, unit: str = "") -> Any:
    return option(
        "auto",
        doc,
        unit=unit,
        check=lambda v: v == "auto" or (str(v).isdecimal() and int(v) > 0),
        expected="auto, or a number above 0",
    )


def micro_batch_tokens(passes: str) -> Any:
    doc = f"Token budget of one {passes} pass per rank; auto is 1,024 to 2,048 on CPU, and more on GPU."
    return auto_or_number(doc, unit="tokens")


def ranks_per_sequence() -> Any:
    return positive(1, "Ranks that split each row's tokens (Ulysses), for rows too long for one rank.", unit="ranks")


def is_fraction(text: Any) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def fraction(default: Any, doc: str) -> Any:
    return option(default, doc, check=lambda v: 0 <= v <= 1, expected="a number from 0 to 1")
