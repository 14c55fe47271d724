"""One value of an answer: a number, words or an expression, with its unit separated."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from verl_like_graders.maths.bases import in_base
from verl_like_graders.maths.units import NO_UNIT, Unit, squeezed, without_unit

MAX_POWER_OF_TEN = 1000


class Unreadable(ValueError):
    """Raised for text that is not an answer; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One value. Equal texts are equal values; if both have a number, the numbers are compared."""

    text: str
    number: Fraction | None = None
    unit: Unit = NO_UNIT  # ``NO_UNIT`` also if it is unknown
    is_words: bool = False  # compared as text alone
    has_formula: bool = False  # words that contain a formula
    name: str = ""  # the x of "x = 5"


_N = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(rf"[-+]?{_N}")
_FRACTION = re.compile(rf"([-+]?)(?:\\frac\{{([-+]?{_N})\}}\{{([-+]?{_N})\}}|({_N})/({_N}))")
_MIXED = re.compile(r"(-?)(\d+) ?(?:\\frac\{(\d+)\}\{(\d+)\}|(?<= )(\d+)/(\d+))")
_SCIENTIFIC = re.compile(rf"([-+]?{_N})(?:\\cdot ?10\^(?:(\d)|\{{([-+]?\d{{1,4}})\}})|[eE]([-+]?\d{{1,4}}))")
_REPEATING = re.compile(r"(-?)(\d*)\.(\d*)\\(?:overline|bar)\{(\d+)\}")
_PURE_WORDS = re.compile(r"[\w\s.,'!?°-]*")
_LETTER = re.compile(r"\(?([a-zA-Z])\.?\)?")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_SPELLED = re.compile(r"[^\W\d_]{2,}")
_WORD = re.compile(r"[a-zA-Z]{3,}|\b(?:[Nn]o|NO)\b")
_ORDINARY = re.compile(r"(?:[a-z\W\d_]|\b[A-Z][a-z]*\b|\b[A-Z]+\b)*")  # words that differ only in capitals are equal
_SHORT = frozenset(
    ["no", "yes", "odd", "all", "one", "two", "six", "ten", "red", "mon", "sun"]
)  # not the letters of a geometric figure
_PROSE = re.compile(
    r"(?<![\\a-zA-Z])[a-zA-Z]{5,}|(?<![\\a-zA-Z])[a-zA-Z]+ [a-zA-Z]{2,}|(?<![\\a-zA-Z])[a-zA-Z]{2,} [a-zA-Z]"
)
# Signs that no expression contains: a set, a line over letters, a congruence.
_SYMBOL = re.compile(
    r"[-+]?\\infty|\\emptyset|\\math(?:bb|cal)\{[A-Z]\}|\\[a-zA-Z]+\{[A-Z]{2,}\}|\\(?:triangle|angle) "
    r"?[A-Z]+|.*\\equiv.*"
)
_CONGRUENCE = re.compile(r"(?:([^\\]+)\\equiv ?)?([^\\]+)\\pmod\{(\w+)\}")
_WHOLE = re.compile(r"-?\d{1,50}")
_TIME = re.compile(r"(\d+(?::\d+)+) ?(?:([AaPp])\.? ?[Mm]\.?)?")  # or a ratio


def leaf(text: str) -> Leaf:
    """Read one value from text in uniform spelling."""
    if (digits := in_base(squeezed(text))) is not None:
        return Leaf(text=digits.text, number=digits.number, unit=digits.unit, is_words=digits.number is None)
    if match := _CONGRUENCE.fullmatch(squeezed(text)):
        name, residue, modulus = match.groups()
        if _WHOLE.fullmatch(residue) and modulus.isdigit() and int(modulus):
            residue = str(int(residue) % int(modulus))
        return Leaf(text=f"{residue}\\pmod{{{modulus}}}", is_words=True, name=name or "")
    value, unit = without_unit(text.strip())
    found = _bare(value)
    if unit is NO_UNIT:
        return found
    if found.is_words:  # 5 ft 3 in is not a length of three inches
        return _bare(text)
    return replace(found, unit=unit, number=found.number and found.number / 100 if unit.name == "%" else found.number)


def _bare(text: str) -> Leaf:
    """Read a value without a unit."""
    has_words = any(_SPELLED.search(words) for words in _TEXT.findall(text))
    text = squeezed(_TEXT.sub(r" \1 ", text))
    if not text:
        raise Unreadable("it is empty")
    if letter := _LETTER.fullmatch(text):
        return Leaf(text=letter[1])
    number = _number(text)
    if number is not None:
        return Leaf(text=str(number), number=number)
    if match := _TIME.fullmatch(text):
        return Leaf(text=f"{match[1]}{(match[2] or '').lower()}", is_words=True)
    if _SYMBOL.fullmatch(text):
        return Leaf(text=text, is_words=True)
    if _PURE_WORDS.fullmatch(text) and (has_words or _WORD.search(text)):
        is_one_word = _ORDINARY.fullmatch(text) and (len(text) > 3 or text.lower() in _SHORT)
        return Leaf(text=text.lower() if is_one_word else text, is_words=True)
    if has_words or _PROSE.search(text):
        return Leaf(text=text, is_words=True, has_formula=True)
    return Leaf(text=text)


def _number(text: str) -> Fraction | None:
    """Return the exact number that the text writes, or None if it is not a number or divides by zero."""
    if _DECIMAL.fullmatch(text):
        return Fraction(text.removesuffix("."))
    if match := _FRACTION.fullmatch(text):
        over, under = (
            Fraction((match[2] or match[4]).removesuffix(".")),
            Fraction((match[3] or match[5]).removesuffix(".")),
        )
        return _signed(match[1], over / under) if under else None
    if match := _MIXED.fullmatch(text):
        divisor = int(match[4] or match[6])
        part = Fraction(int(match[3] or match[5]), divisor) if divisor else Fraction(1)
        return _signed(match[1], int(match[2]) + part) if part < 1 else None
    if match := _SCIENTIFIC.fullmatch(text):
        power = int(match[2] or match[3] or match[4])
        return Fraction(match[1].removesuffix(".")) * Fraction(10) ** power if abs(power) <= MAX_POWER_OF_TEN else None
    if match := _REPEATING.fullmatch(text):
        digits, cycle = match[3], match[4]
        fraction = Fraction(int(match[2] or "0")) + (Fraction(int(digits), 10 ** len(digits)) if digits else 0)
        return _signed(match[1], fraction + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(digits)))
    return None


def _signed(sign: str, number: Fraction) -> Fraction:
    return -number if sign == "-" else number
