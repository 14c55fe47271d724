r"""Numbers in a base, such as ``1011_2``, ``1ABC_{16}`` and ``(1010)_{\text{two}}``: digits and a base."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from verl_like_graders.maths.units import Unit

MAX_BASE = 36
TEN = "base 10"
_NAMES = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_BASE = r"(?:\d{1,2}|\\?\(?\d{1,2}\\?\)?|\\text\{(?:base)?(?:\d{1,2}|[a-z]+)\}|\\text\{base\}\d{1,2}|[a-z]{3,})"
_DIGITS = r"(-?)\(?(?:\\text\{)?([\dA-Za-z]+(?:\.[\dA-Za-z]+)?)\}?\)?"
_IN_BASE = re.compile(rf"{_DIGITS}_(?:\{{({_BASE})\}}|(\d|\\text\{{[a-z]+\}}))")
_IN_WORDS = re.compile(
    r"(-?)(\d[\dA-Za-z]*(?:\.[\dA-Za-z]+)?) ?(?:\\text\{|\()? ?(?:in )?[Bb]ase[ -]?\}?(\d{1,2}|[a-z]+) ?[})]?"
)
_IN_GROUPS = re.compile(r"(?<=[\dA-F])[ ,](?=[\dA-F]{3,4}(?![\dA-F]))")


@dataclass(frozen=True, slots=True)
class BasedNumber:
    """A number in a base. ``number`` reads the digits in base ten; it is None if they include letters or exceed the
    base.
    """

    text: str
    number: Fraction | None
    unit: Unit


def in_base(text: str) -> BasedNumber | None:
    """Return the number that the text, which has no spaces, writes in a base, or None if it is anything else.

    A single letter is a name, as in ``a_{12}``. Digits too large for the base, as in ``420_2``, do not form a number;
    their text is kept with the base.
    """
    text = _IN_GROUPS.sub("", text)
    match = _IN_BASE.fullmatch(text) or _IN_WORDS.fullmatch(text)
    if match is None:
        return None
    sign, digits, *bases = match.groups()
    base = _base(next(base for base in bases if base))
    if base is None or not _are_digits(digits, base):
        return None
    values = [int(digit, MAX_BASE) for digit in digits if digit != "."]
    whole, _, decimals = digits.upper().partition(".")
    canonical = sign + (whole.lstrip("0") or "0") + (f".{decimals.rstrip('0')}" if decimals.rstrip("0") else "")
    is_number = max(values) < min(base, 10)
    text = canonical if max(values) < base else f"{canonical}_{base}"
    return BasedNumber(text, Fraction(canonical) if is_number else None, Unit(f"base {base}"))


def _base(text: str) -> int | None:
    word = re.sub(r"\\text|base|[{}()\\]", "", text)
    base = int(word) if word.isdigit() else _NAMES.split().index(word) + 2 if word in _NAMES.split() else 0
    return base if 2 <= base <= MAX_BASE else None


def _are_digits(text: str, base: int) -> bool:
    """Return whether all letters are digits of the base, mixed with figures or at least two capitals."""
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return True
    if any(int(letter, MAX_BASE) >= base for letter in letters):
        return False
    return any(figure.isdigit() for figure in text) or (len(letters) > 1 and text.isupper())
