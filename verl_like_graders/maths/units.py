r"""Units after a value.

A unit consists of known words (``unit_words.py``, ``counted.py``), powers, "per" and a slash. Any other word may change
the value, so the text is then left whole.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from verl_like_graders.maths.counted import ADJECTIVES, MASS, UNCHANGED, counted
from verl_like_graders.maths.unit_words import NEEDS_SPACE, PLAIN_GLUED, PLAIN_SPACED, Measure, measure, measure_of_two


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit in uniform spelling, with its size in base units: ``m`` and 1000 for km."""

    name: str = ""
    scale: Fraction = Fraction(1)


NO_UNIT = Unit()
MAX_WORDS = 12
MAX_POWER = 9
_CURRENCIES = {r"\$": "dollar", "€": "euro", "¥": "yen", "£": "pound", r"\pounds": "pound"}
_CURRENCY = re.compile(r"(-?)\s*(\\\$|[€£¥]|\\pounds(?![a-zA-Z]))\s*(.+)")
_TEMPERATURE = re.compile(
    r"(.+?)\s*(?:\\text\{\s*)?(?:°|degrees?)\s*(?:\\text\{\s*)?(C|F|[Cc]elsius|[Ff]ahrenheit)\s*\}?"
)
# the degrees of a function's argument, not a unit
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])[^()]*°$")
_UPRIGHT = re.compile(r"\\(?:text\s*\{|Omega(?![a-zA-Z])|mu\s*\\text\{)")  # where a LaTeX unit may begin
_MAX_STARTS = 4
_ENDS_A_VALUE = re.compile(r"(?<!\\cdot)(?<!\\div)(?<!\\pm)[^\-+*/^_=({<>\s]\s*\Z")
_PLAIN = re.compile(r"(.*(?:[\d)}%°]|\\pi))(\s*)([a-zA-Z][a-zA-Z./ ]*(?:\^\s*\{?-?\d\}?[a-zA-Z./ ]*){0,4})")
_LETTER = re.compile(r"[a-zA-Z]")  # after such a letter, a single letter is another factor
_UPRIGHT_FRACTION = re.compile(
    r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*((?:\^\s*\{?\d\}?)?)\s*\}"
)
_WORD = re.compile(r"[a-zA-Z]+(?:-[a-zA-Z]+)*|\^\s*\{?\s*-?\d+\s*\}?|[/·()]")
_PER_CENT = re.compile(r"per\s+(?:cents?|mille?)\b", re.IGNORECASE)
_RAISED = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED_AFTER = {"squared": 2, "cubed": 3}
_ARTICLES = ("per", "a", "an")


def squeezed(text: str) -> str:
    """Return the text without meaningless spaces; spaces between two letters or two digits stay."""
    text = re.sub(r"(?<=\d)\s+(?=\d)", "\x00", text.strip())
    text = re.sub(r"(?<=[a-zA-Z])\s+(?=[a-zA-Z])", "\x00", text)
    return re.sub(r"\s+", "", text).replace("\x00", " ")


def without_unit(text: str) -> tuple[str, Unit]:
    """Return the value alone and its unit, ``NO_UNIT`` if there is none or the words are not a unit."""
    if match := _CURRENCY.fullmatch(text):
        value, rest = _without_suffix(match[1] + match[3])
        currency = unit_of(_CURRENCIES[match[2]])
        assert currency is not None, "the currencies are units"
        if rest in (NO_UNIT, currency):
            return value, currency
        # A rate, as in $5 per hour. Any other word ($5 K) stays part of the text.
        return (value, _product(currency, rest)) if _is_rate(rest) else (text, NO_UNIT)
    if match := _TEMPERATURE.fullmatch(text):
        return match[1], Unit(f"degree {match[2][0].upper()}")
    return _without_suffix(text)


def _without_suffix(text: str) -> tuple[str, Unit]:
    value, unit = _split_off(text)
    if not value.endswith(("%", "°")) or len(value) == 1 or _ANGLE.search(value):
        return value, unit
    if unit is NO_UNIT or _is_rate(unit):
        return value[:-1].strip(), Unit("%" if value.endswith("%") else "degree")
    return text, NO_UNIT


def _is_rate(unit: Unit) -> bool:
    """Return whether the unit begins with "per"."""
    return unit.name.startswith("per ")


def _product(unit: Unit, rate: Unit) -> Unit:
    factors = sorted([*unit.name.split(), *rate.name.removeprefix("per ").split()])
    return Unit(" ".join(factors), unit.scale * rate.scale)


def _split_off(text: str) -> tuple[str, Unit]:
    for match, _ in zip(_UPRIGHT.finditer(text), range(_MAX_STARTS), strict=False):
        start = match.start()
        if fraction := re.search(r"\\frac\s*\{\s*\Z", text[:start]):
            start = fraction.start()
        value = text[:start]
        if value.strip() and _ENDS_A_VALUE.search(value):
            words = _in_plain_words(text[start:])
            if (
                words is not None
                and _may_follow(value, words)
                and (unit := unit_of(words, is_one=value.strip() == "1"))
            ):
                return value.strip(), unit
    if (
        (plain := _PLAIN.fullmatch(text))
        and _may_be_plain(*plain.groups())
        and (unit := unit_of(plain[3], is_one=plain[1] == "1"))
    ):
        return plain[1].strip(), unit
    return text.strip(), NO_UNIT


def _in_plain_words(tail: str) -> str | None:
    """Return a LaTeX unit as plain words, or None if the text contains anything else."""
    tail = re.sub(r"\^\s*\{\s*(-?\d+)\s*\}", r"^\1", tail)
    tail = _UPRIGHT_FRACTION.sub(r" \1/\2\3 ", tail)
    tail = re.sub(r"\\mu\s*(?:(\\text\{)\s*)?(?=[a-zA-Z])", r"\1u", tail)
    tail = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", tail).replace(r"\cdot", "·")
    tail = re.sub(r"([kMm]?)\s*\\Omega(?![a-zA-Z])", r" \1ohm ", tail)
    return None if "\\" in tail else tail


def _may_follow(value: str, words: str) -> bool:
    """Return whether an upright symbol is a unit rather than a factor or a thousand: 5 K is, 5K is not."""
    return words.strip() not in NEEDS_SPACE or value.endswith(" ") or words.startswith("  ")


def _may_be_plain(value: str, space: str, words: str) -> bool:
    """Return whether the letters after a value are words (5cm, 5 m, 5 apples) rather than factors (5m, 2mg)."""
    first = re.split(r"[\s./^]", words, maxsplit=1)[0]
    if first in PLAIN_GLUED or first.lower() in PLAIN_GLUED:
        return True
    if len(first) >= 3 and first.isalpha() and not space:
        return measure(first) is not None and first.islower() and first not in PLAIN_SPACED
    if len(first) == 1:
        return bool(space) and (
            first == "a" or (first in PLAIN_SPACED and not _LETTER.search(value.replace(r"\frac", "")))
        )
    return bool(space) and (len(first) >= 3 or first in PLAIN_SPACED or first in ("a", "an", "sq", "cu", "fl"))


def unit_of(text: str, *, is_one: bool = False) -> Unit | None:
    """Return the unit that the words form, such as ``km/h``, ``square inches``, ``cups of flour``, ``apples per day``.

    Return None if a word is neither a unit, nor a countable noun, nor part of one. Countable nouns must be plural
    unless ``is_one``: 5 hat may be a letter with a hat.
    """
    text = text.replace(".", " ").replace("*", "·").strip()
    words = [re.sub(r"[\s{}]", "", word) for word in _WORD.findall(text)]
    if not words or len(words) > MAX_WORDS or _PER_CENT.match(text) or re.sub(r"[\s{}]", "", text) != "".join(words):
        return None
    return _Phrase(words, is_one).read()


class _Phrase:
    """Parser for the words of a unit, left to right."""

    def __init__(self, words: list[str], is_one: bool) -> None:
        while words and words[-1].lower() in ("total", "altogether", "each", "all") and len(words) > 1:
            words = words[:-2] if words[-2].lower() == "in" else words[:-1]
        self._words, self._position, self._is_one = words, 0, is_one
        self._powers: Counter[str] = Counter()
        self._scale = Fraction(1)

    def read(self) -> Unit | None:
        is_rate = bool(self._words) and self._words[0].lower() in _ARTICLES and len(self._words) > 1
        sign = 1
        while self._position < len(self._words):
            word = self._take()
            if word in ("·", ")") or (word == "(" and sign < 0):
                continue
            if word == "/" or (word.lower() in _ARTICLES and (is_rate or self._powers)):
                if self._position == len(self._words):
                    return None
                sign = -1
                continue
            if not self._read_unit(word, sign):
                return None
        powers = sorted((name, power) for name, power in self._powers.items() if power)
        if not powers or any(abs(power) > MAX_POWER for _, power in powers):
            return None
        name = " ".join(name if power == 1 else f"{name}^{power}" for name, power in powers)
        return Unit(f"per {name}" if is_rate else name, self._scale)

    def _take(self) -> str:
        self._position += 1
        return self._words[self._position - 1]

    def _next(self) -> str:
        return self._words[self._position] if self._position < len(self._words) else ""

    def _read_unit(self, word: str, sign: int) -> bool:
        """Read a unit with its powers, or a countable noun; return whether there is one."""
        power = _RAISED.get(word.lower(), 1)
        if power > 1:
            if not self._next():
                return False
            word = self._take()
        pair = measure_of_two(word, self._next())
        if pair:
            self._take()
        found = pair or measure(word)
        if found is None:
            return power == 1 and self._read_counted(word, sign)
        if raised := re.fullmatch(r"\^(-?\d+)", self._next()):
            power *= int(raised[1])
            self._take()
        elif self._next().lower() in _RAISED_AFTER:
            power *= _RAISED_AFTER[self._take().lower()]
        if abs(power) > MAX_POWER:
            return False
        self._multiply(found, power * sign)
        return self._skip_what_is_measured()

    def _multiply(self, found: Measure, power: int) -> None:
        for name, times in found.dimensions:
            self._powers[name] += times * power
        self._scale *= found.scale**power

    def _read_counted(self, word: str, sign: int) -> bool:
        """Read the last of several nouns, which is the one counted: chocolate chip cookies, different ways.

        Return whether there is such a noun.
        """
        noun = ""
        while True:
            found = counted(word.lower()) or (word.lower() if noun and word.lower() in MASS else "")
            if not found and not (word.lower() in ADJECTIVES or word.lower() in MASS):
                return False
            noun = found
            if not self._next() or self._next() in ("/", "of") or self._next().lower() in _ARTICLES:
                break
            word = self._take()
        is_single = noun == word.lower() and noun not in UNCHANGED
        if not noun or (is_single and sign > 0 and not self._is_one):
            return False
        self._powers[f"#{noun}"] += sign
        return self._skip_what_is_measured()

    def _skip_what_is_measured(self) -> bool:
        """Skip the substance after "of", as in cups of flour; return whether the words name one."""
        if self._next() != "of":
            return True
        self._take()
        words = []
        while self._next() and self._next() != "/" and self._next().lower() not in _ARTICLES:
            words.append(self._take().lower())
        return bool(words) and all(word in MASS or word in ADJECTIVES or counted(word) for word in words)
