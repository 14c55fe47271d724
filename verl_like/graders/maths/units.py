"""Units behind a value: which words are one, and which change the value instead."""

from __future__ import annotations

import re

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
    "newton": "",
    "joule": "",
    "watt": "",
    "volt": "",
    "pascal": "pa",
    "hertz": "hz",
    "mole": "mol",
    "nm": "nanometer nanometre",
    "ton": "tonne",
    "euro": "",
    "dollar": "usd",
    "cent": "",
}
_UNIT_OF = {
    word: unit for unit, words in _UNITS.items() for name in (unit, *words.split()) for word in (name, f"{name}s")
}
_SYNONYMS = {"mph": "mi/h"}
_RAISED_UNIT = re.compile(r"([a-z° -]*)(?:\^\{?([23])\}?)?\s*")
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "squared": 2, "cubed": 3}
_TEXT_UNIT = re.compile(
    r"(.*[^\s\-+*/^_=({])\s*\\text\{\s*([a-zA-Z°](?:[a-zA-Z°./ -]|\^(?:\d|\{\d\}))*?)\s*\}\s*(?:\^\s*\{?([23])\}?)?\s*"
)
_PLAIN_UNIT = re.compile(r"(.*(?:[\d)}%°]|\\pi))(\s*)([a-zA-Z][a-zA-Z./ ]*?)\s*(?:\^\s*\{?([23])\}?)?\s*")
_TEMPERATURE = re.compile(
    r"(.+?)\s*(?:\\text\{\s*)?(?:°|degrees?)\s*(?:\\text\{\s*)?(C|F|[Cc]elsius|[Ff]ahrenheit)\s*\}?"
)
# Words that change what stands before them or doubt it: "5 or more" and "5 million" are not five, 5 a.m. is not 5 p.m.
_NO_UNIT = re.compile(
    r"\b(?:or|and|not|no|more|less|than|least|most|mod|base|if|for|to|of|[ap]\.? ?m|plus|minus|times|divided|over|under"
    r"|root|factorial|repeating|recurring|remainder|is|are|was|were|too|maybe|perhaps|possibly|never|wrong|false|true"
    r"|correct|incorrect|impossible|excluded|negative|positive|loss|debt|deficit|decrease|increase|ago|below|above|fewer"
    r"|hex|hexadecimal|octal|binary|decimal|per (?:cent|mille)|permille|ppm|bp|lakhs?|crores?|grand|mil|gross|score"
    r"|bc|ad|(?:dozen|hundred|thousand|[mbtr]+illion)s?|hal(?:f|ves)|thirds?|quarters?"
    r"|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths?"
    r"|approx(?:imately)?|about|almost|nearly|roughly)\b"
)
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])[^()]*°$")  # of a function, and no unit
_FACTORS = re.compile(r"[a-zA-Z]")  # what a single letter behind it would be another of
_COUNTED = re.compile(r"[A-Z]?[a-z]*[aeiouy][a-z]*(?:[-/][a-z]+)*\.?")  # a word, and no product of letters


def squeezed(text: str) -> str:
    """The text without the spaces that mean nothing; they mean something between letters and between digits."""
    text = re.sub(r"(?<=\d)\s+(?=\d)", "\x00", text.strip())
    text = re.sub(r"(?<=[a-zA-Z])\s+(?=[a-zA-Z])", "\x00", text)
    return re.sub(r"\s+", "", text).replace("\x00", " ")


def without_unit(text: str) -> tuple[str, str]:
    """The value alone, and its unit in uniform spelling; "" where there is none."""
    unit = ""
    if match := re.fullmatch(r"(-?)\s*(?:\\([$])|([€£¥]|\\pounds))\s*(.+)", text):
        text, unit = match[1] + match[4], "dollar" if match[2] else {"€": "euro", "¥": "yen"}.get(match[3], "pound")
    if match := _TEMPERATURE.fullmatch(text):
        return match[1], f"degree {match[2][0].upper()}"
    for _ in range(2):  # as in $5 a day
        if text.endswith((r"%", "°")) and len(text) > 1 and not _ANGLE.search(text):
            text, unit = text[:-1].strip(), unit or ("%" if text.endswith("%") else "degree")
            continue
        match = _TEXT_UNIT.fullmatch(text)
        found = _text_unit(match[2], match[3]) if match else ""
        if not found:
            match = _PLAIN_UNIT.fullmatch(text)
            found = _plain_unit(*match.groups()) if match else ""
        if match and found:
            text, unit = match[1], unit or found
    return text.strip(), unit


def _text_unit(words: str, power: str | None) -> str:
    r"""The unit that upright words behind a value are; "" for \text{i} and \text{AB}, which are factors."""
    return _known_unit(words, power) or ("" if power else _counted(words, min_letters=3))


def _plain_unit(value: str, space: str, words: str, power: str | None) -> str:
    """The unit that words right behind a value are, as in 5cm, 5 m and 5 apples; "" for the factors of 5m, 5 xy and
    r^2 h.
    """
    if known := _known_unit(words, power):
        is_unit = len(words) > 1 or (space and not _FACTORS.search(value.replace(r"\frac", "")))
        return known if is_unit else ""
    return _counted(words, min_letters=3) if space and not power else ""


def _counted(words: str, *, min_letters: int) -> str:
    """What is counted: the last of the words, in the singular; "" where they are no such words."""
    if _NO_UNIT.search(words.lower()):
        return ""
    each = words.split()
    if not all(_COUNTED.fullmatch(word) and (len(word) >= min_letters or word in ("a", "an", "in")) for word in each):
        return ""
    return f"counted {re.sub(r'(?:ies|es|s|y|e)?[.]?$', '', each[-1].lower())}"


def _known_unit(words: str, power: str | None) -> str:
    """``cm^2`` for square centimetres, ``mi/h`` for miles per hour; "" where a word is none of ours."""
    over = []
    for side in re.split(r"\s+per\s+|/", words.lower().replace(".", "").strip()):
        match = _RAISED_UNIT.fullmatch(side)
        if match is None:
            return ""
        names = match[1].split()
        raised = next((_POWERS[name] for name in names if name in _POWERS), int(match[2] or 1))
        units = [_UNIT_OF.get(name, "") for name in names if name not in _POWERS]
        if len(units) != 1 or not units[0]:
            return ""
        over.append(units[0] if raised == 1 else f"{units[0]}^{raised}")
    found = "/".join(over)
    return _SYNONYMS.get(found, found) + (f"^{power}" if power else "")
