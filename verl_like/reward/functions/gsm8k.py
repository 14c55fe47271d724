"""Reward for GSM8K (2110.14168): is the final number the right one?"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

# A minus counts as a sign only where it cannot be a subtraction: not behind a digit, a letter or a closing bracket.
_SIGN = r"(?:(?<![\w.)\]])-\s?)?"
_NUMBER = re.compile(rf"{_SIGN}\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
_STRICT = re.compile(r"####\s*(-?\s?\$?\s?-?(?:\d[\d,]*(?:\.\d+)?|\.\d+))")


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any], *,
                  method: str = "strict", format_score: float = 0.0) -> dict[str, float | str]:
    """1 where the response's final number equals the ground truth's.

    Thousands separators, a dollar sign and a trailing period do not count, and 18.00 equals 18.

    Args:
        ground_truth: the number as text, or a published answer that ends in ``#### N``.
        method: ``strict`` reads the last ``#### N``; ``flexible`` the last number anywhere.
        format_score: given where a number was found but is wrong.

    Returns:
        ``score``, ``acc`` (1 or 0) and ``pred``: the number found, or "" where there is none.

    Raises:
        ValueError: for another method, or a ground truth without a number.
    """
    if method not in ("strict", "flexible"):
        raise ValueError(f"method is {method!r}; expected strict or flexible. Set reward.function_kwargs.method.")
    truth = strict_number(str(ground_truth)) or flexible_number(str(ground_truth))
    if truth is None:
        raise ValueError(f"ground_truth is {ground_truth!r}; expected a number, or an answer that ends in '#### N'.")
    found = strict_number(solution_str) if method == "strict" else flexible_number(solution_str)
    if found is None:
        return {"score": 0.0, "acc": 0.0, "pred": ""}
    is_right = Decimal(found) == Decimal(truth)
    return {"score": 1.0 if is_right else format_score, "acc": float(is_right), "pred": found}


def strict_number(text: str) -> str | None:
    """The number behind the last ``####``, as plain digits; None where there is none."""
    matches = _STRICT.findall(text)
    return _plain(matches[-1]) if matches else None


def flexible_number(text: str) -> str | None:
    """The last number in the text, as plain digits; None where there is none."""
    matches = _NUMBER.findall(text)
    return _plain(matches[-1]) if matches else None


def _plain(number: str) -> str:
    """``-$1,080.50`` as ``-1080.5``: equal numbers become equal text, so that votes can be counted."""
    digits = re.sub(r"[^\d.]", "", number)
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    digits = digits.lstrip("0") or "0"
    digits = f"0{digits}" if digits.startswith(".") else digits
    return f"-{digits}" if "-" in number and digits != "0" else digits
