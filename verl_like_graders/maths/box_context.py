r"""Decide whether a box is an answer: "x = \boxed{5}." is one, but in ``2^{\boxed{5}}`` the box is part of a formula.

The next item on each side decides, after white space, Markdown, quotes and maths delimiters are skipped. In prose the
end of a line separates. In a formula it separates two factors, but not an operator from its operand.
"""

from __future__ import annotations

import re

from verl_like_graders.maths.neighbours import (
    OPEN_COMMANDS,
    SEPARATORS,
    SHOWING,
    WORDS,
    Neighbour,
    is_changed,
    is_changing,
    is_frequency,
    item_after,
    item_before,
    unit_after,
)
from verl_like_graders.maths.surroundings import surroundings

# Text without meaning next to a box.
_SPACING = (
    r"\\[,;:!> ]|~|\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|thinspace|enspace|large|Large|bf|rm|it"
    r"|color\s*\{\w+\})(?![a-zA-Z])"
)
_IDLE = rf"\s|{_SPACING}|\\?[$€£¥]|(?<!\\)\\[()\[\]]"
_QUOTE = "[\"'`“”‘’«»„「」『』]"
_IDLE_BEFORE = re.compile(rf"(?:{_IDLE}|(?:{SHOWING})?\{{|\\\{{|[(\[（【《])\Z")
_IDLE_AFTER = re.compile(rf"{_IDLE}|\\\}}|[)\]}}）】》]")
_QUOTE_BEFORE, _QUOTE_AFTER = re.compile(rf"{_QUOTE}\Z"), re.compile(_QUOTE)

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BRACKET = re.compile(r"\\[{}]|[()\[\]]")
_SHOWS = re.compile(rf"(?:\A|[^\^_}}\]a-zA-Z\s]|(?<![\\a-zA-Z])[a-zA-Z]+|{SHOWING})\s*\Z")
_APPLIED = re.compile(r"[\w})\]]\Z")

_HEADING = re.compile(r"(?<!\w)(?:answers?|ans|results?|solutions?|conclusion|output)\s*\Z", re.IGNORECASE)
_VERB = re.compile(
    r"(?<!\w)(?:is|are|was|were|be|equals?|to|of|gets?|have|has|by|so|thus|or|and|than|as|gives?|with|from)\s*\Z",
    re.IGNORECASE,
)
_SUBTRAHEND = re.compile(r"\s*(?:[\d\\($.√\x00]|[a-zA-Zπ](?![a-zA-Z])(?!\s+[a-z]{2,}))")
_FACTOR = re.compile(r"\s*(?:[\d\\($√\x00]|[a-zA-Zπ]{1,2}(?![a-zA-Z]))")
_ONLY_VALUES = re.compile(r"\s*[,;]\s*[-+]?[\d\\][^a-zA-Z]*\Z")
_ONE_NUMBER = re.compile(r"[-$€£\\\s]{0,5}([\d.,]*\d)(?:\s*\\text\{[^{}\d]*\})?")
_NAMED_NUMBER = re.compile(r"[a-zA-Z]{2,}[\s#]*\Z|[\u3040-\u9fff]\Z")


def belonging(text: str, start: int, end: int, *, content: str) -> str | None:
    """Return what belongs to the answer in the box at ``text[start:end]``: a unit, a base or "".

    Return None if the box is part of a formula, or if words next to it change the value.
    """
    around = surroundings(text, start, end)
    if _is_argument(around.paragraph):
        return None
    outer_before, outer_after = around.line
    belongs, side = "", ""
    if around.formula is not None:
        side = "$"
        before, after = around.formula
        rest, gap = _without_idle_end(before, "", is_prose=False)
        if rest and (_opens_list(before) or _joins_formula_before(rest, gap)):
            return None
        if rest or around.is_display:
            outer_before = ""
        rest, gap, belongs = _without_idle_start(after, "", content, is_prose=False)
        if rest and (_closes_list(after) or _joins_formula_after(rest, gap)):
            return None
        if rest or around.is_display:
            outer_after = ""
    rest, gap = _without_idle_end(outer_before, side, is_prose=True)
    if rest and (_opens_list(outer_before) or _joins_prose_before(rest, gap, content)):
        return None
    rest, gap, unit = _without_idle_start(outer_after, side, "" if belongs else content, is_prose=True)
    if rest and (_closes_list(outer_after) or _joins_prose_after(rest, gap)):
        return None
    return belongs + unit


def _is_argument(before: str) -> bool:
    """Return whether an open brace makes the box an exponent, an index or the argument of a command."""
    level = 0
    for brace in reversed(list(_BRACE.finditer(before))):
        level += {"}": 1, "{": -1}.get(brace[0], 0)
        if level < 0:
            level = 0
            if _SHOWS.search(before[: brace.start()][-60:]) is None:
                return True
    return re.search(r"\\sqrt\s*\[[^\[\]]*\Z", before) is not None


def _opens_list(before: str) -> bool:
    """Return whether an open bracket holds other values before the box or belongs to a function: (3, and P(X=."""
    level = 0
    for bracket in reversed(list(_BRACKET.finditer(before))):
        level += 1 if bracket[0][-1] in ")]}" else -1
        if level < 0:
            held = re.sub(r"\\[a-zA-Z]+", "", before[bracket.end() :])
            is_applied = _APPLIED.search(before[: bracket.start()]) is not None
            return (
                bool(held.strip())
                and WORDS.search(held) is None
                and (is_applied or re.search("[,;]", held) is not None)
            )
    return False


def _closes_list(after: str) -> bool:
    """Return whether a bracket closes that holds other values after the box."""
    level = 0
    for bracket in _BRACKET.finditer(after):
        level += -1 if bracket[0][-1] in ")]}" else 1
        if level < 0:
            held = re.sub(r"\\[a-zA-Z]+", "", after[: bracket.start()])
            return WORDS.search(held) is None and re.search(r"[,;]\s*\S", held) is not None
    return False


def _without_idle_end(text: str, gap: str, *, is_prose: bool) -> tuple[str, str]:
    r"""Return the text without a meaningless end, and the widest gap there: "", "$", " " or "\n"."""
    while text:
        match = _IDLE_BEFORE.search(text[-60:]) or (_QUOTE_BEFORE.search(text[-1:]) if is_prose else None)
        if match is None:
            break
        gap = _wider(gap, match[0])
        text = text[: -len(match[0])]
    return text, gap


def _without_idle_start(text: str, gap: str, content: str, *, is_prose: bool) -> tuple[str, str, str]:
    """Return the text without a meaningless start and a unit, then the widest gap, then the unit."""
    unit = ""
    while text:
        match = _IDLE_AFTER.match(text) or (_QUOTE_AFTER.match(text) if is_prose else None)
        if match is not None:
            gap = _wider(gap, match[0])
            text = text[match.end() :]
        elif content and not unit and (unit := unit_after(text, content, is_apart=bool(gap))):
            text, gap = text[len(unit) :], ""
            unit = f" {unit}" if unit[0].isalpha() else unit
        else:
            break
    return text, gap, unit


def _wider(gap: str, sign: str) -> str:
    if "\n" in gap or "\n" in sign:
        return "\n"
    return " " if sign.isspace() or gap == " " else "$" if sign in ("$", r"\)") or gap else ""


def _joins_text(item: Neighbour) -> bool:
    r"""Return whether upright letters are a factor, as in \text{i}, rather than words."""
    return WORDS.search(item.text) is None and re.search("[a-zA-Z]", item.text) is not None


def _joins_formula_before(text: str, gap: str) -> bool:
    item = item_before(text)
    if item.kind == "text":
        return is_changed(item.text) or _joins_text(item)
    if item.kind == "command":
        is_value = gap == "\n" and (item.has_argument or item.command not in OPEN_COMMANDS)
        return not is_value and item.command not in SEPARATORS
    if item.kind == "word":
        return not gap.isspace() or is_changed(text)
    if item.kind in ("point", "ratio"):
        return not gap.isspace() or item.whole.endswith(":")
    return item.kind in ("dash", "operator") or (item.kind in ("letter", "number", "bracket") and gap != "\n")


def _joins_formula_after(text: str, gap: str) -> bool:
    if _ONLY_VALUES.match(text) or is_changing(text):
        return True
    item = item_after(text)
    if item.kind == "text":
        return is_changing(f"{item.text.strip()} {text[len(item.whole) :]}") or _joins_text(item)
    if item.kind == "command":
        is_value = gap == "\n" and item.command not in OPEN_COMMANDS
        return not is_value and item.command not in SEPARATORS
    if item.kind in ("point", "ratio"):
        return not gap.isspace() or item.whole.startswith(":")
    if item.kind == "word":
        return gap == ""
    return item.kind in ("dash", "operator", "mark") or (item.kind in ("letter", "number", "bracket") and gap != "\n")


def _joins_prose_before(text: str, gap: str, content: str) -> bool:
    item = item_before(text)
    if item.kind == "text":
        return is_changed(item.text) or _joins_text(item)
    if item.kind == "dash":
        return _is_sign(text[:-1], gap)
    if _is_repeated_frequency(text, content):
        return False
    if item.kind == "operator" or is_changed(text):
        return True
    if gap == " " and text.endswith(content):
        return False  # the value is repeated
    if item.kind == "command":
        return item.command not in SEPARATORS
    is_named = _NAMED_NUMBER.search(text.rstrip(": ").rstrip("0123456789")) is not None
    if item.kind == "ratio":
        return not is_named
    if item.kind == "number":
        number = _ONE_NUMBER.fullmatch(content)
        is_repeated = number is not None and _same_number(number[1], item.whole)
        return gap != " " or not (is_repeated or is_named)
    return item.kind in ("letter", "point", "bracket") and gap != " "


def _is_sign(text: str, gap: str) -> bool:
    """Return whether a dash between the text and a box is a minus sign; in "Answer - 5" it is not."""
    if gap != " ":
        return _HEADING.search(text) is None
    stem = text.rstrip()
    item = item_before(stem)
    is_word = item.kind in ("word", "text") and _VERB.search(stem) is None
    return not (is_word or (bool(stem) and stem[-1] in ".!?;。"))


def _joins_prose_after(text: str, gap: str) -> bool:
    if is_changing(text):
        return True
    item = item_after(text)
    rest = text[len(item.whole) :]
    if item.kind == "text":
        return is_changing(f"{item.text.strip()} {rest}") or _joins_text(item)
    if item.kind == "command":
        return item.command not in SEPARATORS
    if item.kind == "dash":
        return _SUBTRAHEND.match(rest) is not None
    if item.kind == "operator":
        return item.whole not in ("*", "/") or _FACTOR.match(rest) is not None
    if item.kind == "mark":
        return re.match(r"\s*[-+*/^=]|\d", rest) is not None
    if item.kind == "letter":
        return gap != " " or re.match(r"['’]|\s+[a-zA-Z]{2}", rest) is None
    if item.kind == "number":
        return gap != " " or "/" in item.whole or len(item.whole) == 3
    if item.kind == "bracket":
        has_words = item.whole == "(" and WORDS.search(rest.partition(")")[0]) is not None
        return gap != " " and not has_words
    if item.kind == "ratio":
        return gap.isspace()
    return (item.kind == "point" and gap != " ") or (item.kind == "word" and gap == "" and item.whole.isascii())


def _is_repeated_frequency(text: str, content: str) -> bool:
    """Return whether the text ends in the content as a frequency: she jumps 84 times."""
    return (
        is_frequency(text)
        and (number := _ONE_NUMBER.fullmatch(content)) is not None
        and _same_number(number[1], text.split()[-2])
    )


def _same_number(text: str, other: str) -> bool:
    text, other = (re.sub(r"\.0+\Z", "", number.replace(",", "")) for number in (text, other))
    return text == other
