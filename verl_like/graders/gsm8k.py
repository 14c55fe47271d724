"""Reward for GSM8K (2110.14168): is the final number the right one?"""

from __future__ import annotations

import re
from collections import deque
from fractions import Fraction
from typing import Any

MAX_CHARS = 100  # of a number

# A comma separates thousands where three digits follow; in 1,2 it ends the number.
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_AMOUNT = rf"(?:{_DIGITS}(?:\.\d+)?|\.\d+)"
# A minus counts as a sign only where it cannot be a subtraction: not behind a digit, a letter or a closing bracket.
_SIGN = r"(?:(?<![\w.)\]])-\s?)?"
_NUMBER = re.compile(rf"{_SIGN}\$?{_AMOUNT}(?:\s?/\s?\d+(?!\d|[.,/]\d))?")
_STRICT = re.compile(rf"####\s*(-?\s?\$?\s?-?{_AMOUNT}(?:\s?/\s?\d+(?!\d|[.,/]\d))?)")
# What shows that the number goes on, so that its beginning is not the answer: 2^10, 3,5 as a pair, 1e5, 12 - 3.
_GOES_ON = re.compile(r"[.,/]?\d|[ \t]?[*^×/+-][ \t]?[$(]?\d|[eE][+-]?\d")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any],
    *,
    method: str = "strict",
    format_score: float = 0.0,
) -> dict[str, float | str]:
    """1 where the response's final number equals the ground truth's.

    Thousands separators, a dollar sign and a trailing period do not count, 18.00 equals 18 and 1/2 equals 0.5.

    Args:
        ground_truth: the number as text, or a published answer that ends in ``#### N``.
        method: ``strict`` reads the last ``#### N``, which is no number where it goes on as in 3,5 or 2^10;
            ``flexible`` the last number anywhere.
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
    is_right = Fraction(found) == Fraction(truth)
    return {"score": 1.0 if is_right else format_score, "acc": float(is_right), "pred": found}


def strict_number(text: str) -> str | None:
    """The number behind the last ``####`` that is followed by one, as plain digits; None where there is none."""
    match = _last(_STRICT, text)
    return _plain(match[1]) if match and not _GOES_ON.match(text, match.end()) else None


def flexible_number(text: str) -> str | None:
    """The last number in the text, as plain digits; None where there is none."""
    match = _last(_NUMBER, text)
    return _plain(match[0]) if match else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _plain(number: str) -> str | None:
    """``-$1,080.50`` as ``-1080.5``: equal numbers become equal text, so that votes can be counted; None for what is
    too long.
    """
    digits, _, divisor = re.sub(r"[^\d./]", "", number).partition("/")
    if len(number) > MAX_CHARS or (divisor and not int(divisor)):
        return None
    if divisor:
        return str(Fraction(digits) / int(divisor) * (-1 if "-" in number else 1))
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    digits = digits.lstrip("0") or "0"
    digits = f"0{digits}" if digits.startswith(".") else digits
    return f"-{digits}" if "-" in number and digits != "0" else digits
