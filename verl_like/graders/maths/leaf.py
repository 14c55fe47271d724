"""One value of an answer: a number, words or an expression, with its unit set aside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_POWER_OF_TEN = 1000


class Unreadable(ValueError):
    """Text that is no answer; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One value. Equal texts are equal values; where both have a number, the numbers decide."""

    text: str
    number: Fraction | None = None
    unit: str = ""  # "" where there is none, or none we know
    is_words: bool = False  # compared as text alone
    name: str = ""  # the x of "x = 5"


_UNITS = {
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "dm": "decimeter decimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "inch": "in inches",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "acre": "",
    "unit": "",
    "mg": "milligram",
    "g": "gram gm",
    "kg": "kilogram",
    "lb": "pound",
    "oz": "ounce",
    "ml": "milliliter",
    "l": "liter litre",
    "gal": "gallon",
    "s": "second sec",
    "min": "minute",
    "h": "hour hr",
    "day": "",
    "week": "",
    "month": "",
    "year": "yr",
    "mph": "",
    "degree": "deg",
    "radian": "rad",
    "dollar": "usd",
    "cent": "",
}
_UNIT_OF = {
    word: unit for unit, words in _UNITS.items() for name in (unit, *words.split()) for word in (name, f"{name}s")
}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_TEXT_UNIT = re.compile(r"(.*[^\s\-+*/^_=({])\s*\\text\{\s*([a-zA-Z°][a-zA-Z°./ -]*?)\s*\}\s*(?:\^\s*\{?([23])\}?)?\s*")
_PLAIN_UNIT = re.compile(r"(.*(?:[\d)}%°]|\\pi))(\s*)([a-zA-Z][a-zA-Z./ ]*?)\s*(?:\^\s*\{?([23])\}?)?\s*")
# "5 or more" and "5 million" are not five; 5 a.m. is not 5 p.m.
_NO_UNIT = re.compile(
    r"\b(?:or|and|not|no|more|less|than|least|most|mod|base|if|for|to|[ap]\.? "
    r"?m|dozen|hundred|thousand|[mbtr]+illion)\b"
)
_BASE = re.compile(r"(\d+)_(?:\{?(\d+)\}?|\\text\{(\w+)\}|\{\\text\{(\w+)\}\})")

_N = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(rf"[-+]?{_N}")
_FRACTION = re.compile(rf"([-+]?)(?:\\frac\{{([-+]?{_N})\}}\{{([-+]?{_N})\}}|({_N})/({_N}))")
_MIXED = re.compile(r"(-?)(\d+) ?(?:\\frac\{(\d+)\}\{(\d+)\}|(?<= )(\d+)/(\d+))")
_SCIENTIFIC = re.compile(rf"([-+]?{_N})(?:\\cdot ?10\^(?:(\d)|\{{([-+]?\d{{1,4}})\}})|[eE]([-+]?\d{{1,4}}))")
_REPEATING = re.compile(r"(-?)(\d*)\.(\d*)\\(?:overline|bar)\{(\d+)\}")
_PURE_WORDS = re.compile(r"[\w\s.,'!?°-]*")
_LETTER = re.compile(r"\(([a-zA-Z])\)")
_WORD = re.compile(r"(?<![\\a-zA-Z])(?:[a-zA-Z]{3,}|[Nn]o(?![a-zA-Z]))")
# What no expression contains: a set's sign, a line over letters, a congruence.
_SYMBOL = re.compile(
    r"[-+]?\\infty|\\emptyset|\\math(?:bb|cal)\{[A-Z]\}|\\[a-zA-Z]+\{[A-Z]{2,}\}|\\(?:triangle|angle) "
    r"?[A-Z]+|.*\\equiv.*"
)
_TIME = re.compile(r"(\d+(?::\d+)+) ?(?:([AaPp])\.? ?[Mm]\.?)?")  # or a ratio


def leaf(text: str) -> Leaf:
    """Read one value; the spelling of its LaTeX is already uniform."""
    text, unit = _without_unit(text.strip())
    has_text = r"\text" in text
    text = squeezed(re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text))
    if not text:
        raise Unreadable("it is empty")
    if letter := _LETTER.fullmatch(text):
        return Leaf(text=letter[1])
    number = _number(text)
    if number is not None:
        return Leaf(text=str(number), number=number / 100 if unit == "%" else number, unit=unit)
    if match := _TIME.fullmatch(text):
        return Leaf(text=f"{match[1]}{(match[2] or '').lower()}", is_words=True)
    if _SYMBOL.fullmatch(text):
        return Leaf(text=text, is_words=True)
    if _WORD.search(text) or (has_text and _PURE_WORDS.fullmatch(text)):
        return Leaf(text=text.lower(), is_words=True)
    return Leaf(text=text, unit=unit)


def squeezed(text: str) -> str:
    """The text without the spaces that mean nothing; they mean something between letters and between digits."""
    text = re.sub(r"(?<=\d)\s+(?=\d)", "\x00", text.strip())
    text = re.sub(r"(?<=[a-zA-Z])\s+(?=[a-zA-Z])", "\x00", text)
    return re.sub(r"\s+", "", text).replace("\x00", " ")


def _without_unit(text: str) -> tuple[str, str]:
    unit = ""
    if match := re.fullmatch(r"(-?)\s*\\\$\s*(.+)", text):
        text, unit = match[1] + match[2], "dollar"
    if match := _BASE.fullmatch(squeezed(text)):
        return match[1], f"base {next(base for base in match.groups()[1:] if base)}"
    for _ in range(2):  # as in 90° C
        if text.endswith((r"%", "°")) and len(text) > 1:
            text, unit = text[:-1].strip(), unit or ("%" if text.endswith("%") else "degree")
        elif (match := _TEXT_UNIT.fullmatch(text)) and not _NO_UNIT.search(match[2].lower()):
            text, unit = match[1], unit or _known_unit(match[2], match[3])
        elif (match := _PLAIN_UNIT.fullmatch(text)) and _is_plain_unit(match[3], has_space=bool(match[2])):
            text, unit = match[1], unit or _known_unit(match[3], match[4])
    return text.strip(), unit


def _is_plain_unit(words: str, *, has_space: bool) -> bool:
    """Whether words right behind a value are a unit, as in 5cm, 5 m and 5 apples, and no factor, as in 5m and 5 xy."""
    if _known_unit(words, None):
        return has_space or len(words) > 1
    return has_space and not _NO_UNIT.search(words.lower()) and all(len(word) > 2 for word in words.split())


def _known_unit(words: str, power: str | None) -> str:
    """``cm^2`` for square centimetres, ``mi/h`` for miles per hour; "" where a word is none of ours."""
    over = []
    for side in re.split(r"\s+per\s+|/", words.lower().replace(".", "").strip()):
        names = side.split()
        raised = next((_POWERS[name] for name in names if name in _POWERS), 1)
        units = [_UNIT_OF.get(name, "") for name in names if name not in _POWERS]
        if len(units) != 1 or not units[0]:
            return ""
        over.append(units[0] if raised == 1 else f"{units[0]}^{raised}")
    return "/".join(over) + (f"^{power}" if power else "")


def _number(text: str) -> Fraction | None:
    """The number that the text is, exactly; None where it is none, or one divided by zero."""
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
        return _signed(match[1], int(match[2]) + Fraction(int(match[3] or match[5]), divisor)) if divisor else None
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
