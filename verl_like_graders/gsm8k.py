"""Reward for GSM8K (2110.14168): 1 if the final number is right."""

from __future__ import annotations

import math
import re
from collections import deque
from fractions import Fraction
from typing import Any

from verl_like_graders.characters import plain
from verl_like_graders.guard import unreadable_is_wrong

MAX_CHARS = 100  # of a number

# A comma or a space separates thousands if three digits follow; in 1,2 the comma ends the number.
_DIGITS = r"(?:(?<!\d )[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+(?! ?\d))(?!\d)|\d+)"
_AMOUNT = rf"(?:{_DIGITS}(?:\.\d+)?|\.\d+)"
# A minus is a sign only if it cannot be a subtraction: not after a digit, a letter or a closing bracket.
_SIGN = r"(?:(?<![\w.)\]])-\s?)?"
_NO_NAME = r"(?<![a-zA-Z_])(?<![a-zA-Z_]\d)(?<![a-zA-Z_]\d\d)"  # the 12 of B12 is not a number
_OVER = r"(?:\s?/\s?\d+(?!\d|[.,/]\d))"
_TIMES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_POWER = r"(?P<power>[eE][-+]?\d{1,3}(?![\da-zA-Z]))"
# As in 1 1/2, 1e5, 5 hundred thousand.
_REST = rf"(?P<part> \d+{_OVER})?{_OVER}?{_POWER}?(?P<times>(?:[ -]?(?i:{'|'.join(_TIMES)})s?\b)*)"
_NUMBER = re.compile(rf"{_SIGN}{_NO_NAME}{_AMOUNT}{_REST}")
_STRICT = re.compile(rf"####\s*\(?\+?(?P<number>(?:-\s?)?{_AMOUNT}{_REST})")
# Only words, such as the thing counted, may follow the number of an answer. This keeps it from being cut out of 2^10,
# 3,5 as a pair, 12 - 3, 2x, 3:30 or 5 and a half. Possessive, so that no text is tried in more than one way.
_WORD = r"[A-Za-z]++(?:['/-][A-Za-z]++)*+"
_ENDS = re.compile(
    rf"\.?(?!!|[A-Z]|[a-z](?![a-z])|[a-z]{{5}})(?:[%)*$,;:](?!\d)|\.(?![.\d])|[ \t(]|{_WORD})*+!?[ \t]*(?:\n|$)"
)
_CHANGES = re.compile(
    r"\b(?:plus|minus|times|over|divided|squared|cubed|factorial|remainder|to|or|through|x|pi|sqrt|root|half|thirds?"
    r"|quarters?|mil|bn|[KMB])\b",
    re.IGNORECASE,
)
# Characters that must not touch the last number of a text, and words that must not precede it.
_CUT_AFTER = re.compile(r"[ ]?(?:[√π²³⁶^½¼¾'′万亿萬億千百]|\\(?:pi|sqrt))|:\d|[ ]?(?:[KMB]|bn|mil|pi)\b")
_CUT_BEFORE = re.compile(r"(?:[√:'^_]|\b(?:minus|negative)\s)$")
# LaTeX and Markdown without meaning here.
_MARKS = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\boxed\s*\{([^{}]*)\}", r"\1"),
        (r"(?<=\d)(?=\\[dt]?frac)", " "),
        (r"\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}", r"\1/\2"),
        (r"(?<=\d)(?:\{,\}|\\[,!])(?=\d{3})", ","),
        (r"\*\*(?!\d)|(?<!\d)\*\*|(?<![\w])__|__(?!\w)", ""),
        (r"\\[()\[\]]|\\?[$€£]", ""),
    )
)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any],
    *,
    method: str = "strict",
    format_score: float = 0.0,
) -> dict[str, float | str]:
    """Score 1 if the response's final number equals the ground truth's.

    Thousands separators, a dollar sign and a trailing period do not count. 18.00 equals 18, 1/2 equals 0.5, 1 1/2
    equals 1.5, and 18 thousand equals 18000. Minus signs, digits and spaces of any script are read.

    Args:
        ground_truth: the number as text, or a published answer that ends in ``#### N``.
        method: ``strict`` reads the last ``#### N``, which is not a number if it continues as in 3,5 or 2^10;
            ``flexible`` reads the last number anywhere.
        format_score: score of a number that was found but is wrong.

    Returns:
        ``score``, ``acc`` (1 or 0) and ``pred``: the number found, or "" if there is none.

    Raises:
        ValueError: an unknown method, or a ground truth without a number.
    """
    if method not in ("strict", "flexible"):
        raise ValueError(f"method is {method!r}; expected strict or flexible. Set reward.function_kwargs.method.")
    return _graded(solution_str, _number_of(ground_truth), method, format_score)


def read_truth(ground_truth: Any) -> str:
    """Check that the ground truth has a number; return "".

    Raises:
        ValueError: the ground truth has no number.
    """
    _number_of(ground_truth)
    return ""


def _number_of(ground_truth: Any) -> str:
    number = strict_number(str(ground_truth)) or flexible_number(str(ground_truth))
    if number is None:
        raise ValueError(f"ground_truth is {ground_truth!r}; expected a number, or an answer that ends in '#### N'.")
    return number


@unreadable_is_wrong
def _graded(response: str, expected: str, method: str, format_score: float) -> dict[str, float | str]:
    found = strict_number(response) if method == "strict" else flexible_number(response)
    if found is None:
        return {"score": 0.0, "acc": 0.0, "pred": ""}
    is_right = Fraction(found) == Fraction(expected)
    return {"score": 1.0 if is_right else format_score, "acc": float(is_right), "pred": found}


def strict_number(text: str) -> str | None:
    """Return the number after the last ``####`` that has one, as plain digits, or None."""
    text = _unmarked(text)
    match = _last(_STRICT, text)
    if match is None:
        return None
    rest = _ENDS.match(text, match.end())
    return _digits(match["number"], match) if rest and not _CHANGES.search(rest[0]) else None


def flexible_number(text: str) -> str | None:
    """Return the last number in the text, as plain digits, or None."""
    text = _unmarked(text)
    match = _last(_NUMBER, text)
    if match is None or _CUT_AFTER.match(text, match.end()) or _CUT_BEFORE.search(text[: match.start()][-20:]):
        return None
    return _digits(match[0], match)


def _unmarked(text: str) -> str:
    text = plain(text)
    for pattern, by in _MARKS:
        text = pattern.sub(by, text)
    return text


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _digits(number: str, match: re.Match[str]) -> str | None:
    """Return a number as plain digits, ``-$1,080.50`` as ``-1080.5``, or None if it is too long.

    Equal numbers become equal text, so that votes can be counted.
    """
    part, power, times = (match[name] or "" for name in ("part", "power", "times"))
    first = number.removesuffix(times).removesuffix(power).removesuffix(part)
    written = [_written(text, is_negative="-" in first) for text in (first, part or "0")]
    if None in written or not (part or power or times):
        return written[0]
    magnitudes = [_TIMES[word] for word in re.findall("|".join(_TIMES), times.lower())]
    factor = math.prod(magnitudes) * Fraction(10) ** int(power[1:] or 0)
    return str(sum(map(Fraction, filter(None, written)), Fraction(0)) * factor)


def _written(number: str, *, is_negative: bool) -> str | None:
    digits, _, divisor = re.sub(r"[^\d./]", "", number).partition("/")
    if len(number) > MAX_CHARS or (divisor and not int(divisor)):
        return None
    if divisor:
        return str(Fraction(digits) / int(divisor) * (-1 if is_negative else 1))
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    digits = digits.lstrip("0") or "0"
    digits = f"0{digits}" if digits.startswith(".") else digits
    return f"-{digits}" if is_negative and digits != "0" else digits
