r"""Where in a response its final answer stands: in ``\boxed{}``, behind "answer is", or at the end."""

from __future__ import annotations

import re
from typing import NamedTuple

from verl_like.graders.characters import plain
from verl_like.graders.maths.expression import FUNCTIONS
from verl_like.graders.maths.reading import MAX_CHARS

MAX_JOINED_BOXES = 10

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_WORD = re.compile(r"[^\s${}]+")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# What may stand between two boxes of one answer: \boxed{1} \quad \text{and} \quad \boxed{2}.
# Atomic, because two of it follow each other; a possessive group, ()*+, would do the same; up to Python
# 3.11.4 those are flawed.
_BLANK = r"(?>(?:[\s$,;&*_]|\\[()\[\],;:! ]|\\q?quad(?![a-zA-Z]))*)"
_JOINS = r"(?:(?:and|or)(?:\s+(?:also|else|perhaps|possibly|maybe))?|as well as|plus)"
_AND = rf"(?:{_JOINS}|\\(?:text[a-z]*|math[a-z]*|mbox)\s*\{{\s*,?\s*{_JOINS}\s*\}})?"
_BETWEEN_BOXES = re.compile(rf"{_BLANK}{_AND}{_BLANK}(?:[a-zA-Z](?:_\w)?\s*=\s*|\(?[a-z\d][).]\s*)?")
# A box that is part of a formula is no answer: -\boxed{2}, \sqrt{\boxed{2}}, \boxed{2}^3.
_OPEN_BEFORE = re.compile(
    r"(?:[+/^\d]|(?<!\*)\*|-|\\(?:cdot|times|div|pm)\s|\\(?:sqrt|[dt]?frac)\s*(?:\{[^{}]*\}\s*)?\{?|\}\{)$|[+/^]\s+$"
)
_OPEN_BEHIND = re.compile(
    r"\s*(?:[+/]\s*[\d\\a-z]|\^(?!\s*\{?\s*\\circ)|-\s*(?:\d|\\(?:sqrt|[dt]?frac|boxed))"
    r"|\\(?:cdot|times|div|pm|pi|sqrt|[dt]?frac)(?![a-zA-Z]))|\d"
)
_TAGGED = re.compile(r"<answer>(.{0,2000}?)</answer>", re.DOTALL | re.IGNORECASE)
_STATED = re.compile(
    r"\banswers?(?:\s+(?=can(?:not|'t)\b|(?:is|are) not\b|isn't\b)"
    r"|\s*(?:is|are|:|=)\s*:?|\s+(?:should|must|would)\s+be|[\s*]*:)"
    r"(?:,?\s*\b(?:therefore|thus|simply|then|hence|indeed|just|exactly|precisely|clearly),?(?=\s))?[\s*]*",
    re.IGNORECASE,
)
# A dollar sign opens maths where no space follows it, or where one precedes the next; prices are no maths.
_MATHS = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?=[^\s$])([^$\n]{1,2000}?)(?<=[^\s\\])\$(?!\d)"
    r"|(?<![\\$])\$[ \t]++([^\s$][^$\n]{0,1999}?)(?<=\S)[ \t]++\$(?!\d)|\\\[(.+?)\\\]|\\\((.+?)\\\)",
    re.DOTALL,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n|</|[,;]?\s(?:since|because|as|which|so|where|when)\s", re.IGNORECASE)
# What shows that a formula behind "the answer is" is not all of the answer.
_GOES_ON = re.compile(
    r"\s*(?:,\s*)?(?:(?:and|or|to|plus|minus|times|if|unless|percent|%)\b|[$\d%]|[-+*/=<>]\s*[$\d\\])"
)
_BOLD = re.compile(r"(?<!\w)\*\*|\*\*(?!\w)")
_DOUBTS = re.compile(r"\b(?:if|unless|not|wrong|incorrect|false|never)\b", re.IGNORECASE)
_COPULA = re.compile(r"(?:\bis|\bare|\bequals|\bequal to)(?:\s+(?:therefore|thus|simply|then))?[\s:]+", re.IGNORECASE)
# Plain text falls into pieces at its spaces; one with a word in it, or a letter with a number such as B12, is no maths.
_PIECE = re.compile(r"(?<=[a-zA-Z]):|[^\s\u2014\u2015]+?(?=[a-zA-Z]:)[a-zA-Z]|[^\s\u2014\u2015]+|\n")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_IS_WORD = re.compile(r"(?<![a-zA-Z])(?:[a-zA-Z]{3,}|[a-zA-Z]{2}(?![a-zA-Z]))|[a-zA-Z]\d+")
_BEHIND_NUMBER = re.compile(r"(?<=\d)(?:[a-zA-Z]{1,5}(?![a-zA-Z\d])|[eE][-+]?\d+)")
_HAS_VALUE = re.compile(r"\d|\\[a-zA-Z]|[π√½]")
_OPERATOR = r"(?:[-=+*/^_<>×·÷≤≥|]|\\(?:cdot|times|div|pm|leq?|geq?|neq?|frac|sqrt)(?![a-zA-Z]))"
_ENDS_OPEN, _BEGINS_OPEN = re.compile(f".*{_OPERATOR}"), re.compile(f"{_OPERATOR}|[{{^_]|\\\\[a-zA-Z]")
_FRACTION = re.compile(r"\d+/\d+")
# Words before and behind a number that make it another.
_SPOILS_BEHIND = "not minus negative than plus times by sqrt root to least most"
_SPOILS_BEFORE = (
    "million billion trillion thousand hundred dozen pi squared cubed factorial half plus minus times to percent x"
)


def boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{}``, joined by commas to boxes right before it.

    None without a box, and where the last one never closes or is part of a formula.
    """
    contents: list[str] = []
    end_of_all = following = None
    for match in reversed(list(_BOX.finditer(text))[-MAX_JOINED_BOXES:]):
        content, end = _content(text, match.end())
        if following is not None and (content is None or not _BETWEEN_BOXES.fullmatch(text, end, following)):
            break
        if content is None:
            return None
        contents.insert(0, content)
        following, end_of_all = match.start(), end_of_all or end
    if following is None or end_of_all is None:
        return None
    if _OPEN_BEFORE.search(text[max(0, following - 100) : following]) or _OPEN_BEHIND.match(text, end_of_all):
        return None
    return ", ".join(dict.fromkeys(contents))


def has_box(text: str) -> bool:
    """Whether a box opens somewhere."""
    return _BOX.search(text) is not None


def _content(text: str, start: int) -> tuple[str | None, int]:
    """What the box that opens at ``start`` holds, and where it ends; a box without braces holds a word."""
    if text[start : start + 1] != "{":
        word = _WORD.match(text, start)
        return (word[0], word.end()) if word else (None, start)
    level = 0
    for brace in _BRACE.finditer(text, start):
        level += {"{": 1, "}": -1}.get(brace[0], 0)
        if level == 0:
            return text[start + 1 : brace.start()], brace.end()
    return None, len(text)


def unboxed(text: str) -> str | None:
    """The answer of a response without a box; None where there is none.

    That is what stands between ``<answer>`` tags, behind the last "answer is" or "Answer:", or else the formula or
    number that ends last, as a whole: of ``n = 2^{10}`` it is never 10.
    """
    text = _BOLD.sub("", plain(text))
    if tagged := list(_TAGGED.finditer(text)):
        return _said(tagged[-1][1].strip().removesuffix("."))
    stated = list(_STATED.finditer(text))
    if stated:
        rest = text[stated[-1].end() :][:MAX_CHARS]
        if (maths := _MATHS.match(rest)) and _GOES_ON.match(rest, maths.end()) is None:
            return next(content for content in maths.groups() if content)
        sentence = _SENTENCE_END.split(rest, maxsplit=1)[0].strip(" *:")
        if sentence:
            return _said(sentence)
    return last_value(text[-MAX_CHARS:])


def _whole(text: str) -> str:
    """What a tag holds, without the signs of maths around it."""
    text = text.strip()
    maths = _MATHS.fullmatch(text)
    return next(content for content in maths.groups() if content) if maths else text


def _said(sentence: str) -> str:
    """The answer in a sentence: The largest $n$ is 34."""
    copulas = list(_COPULA.finditer(sentence))
    if not copulas:
        return _whole(sentence)
    before, between = sentence[: copulas[-1].start()], sentence[copulas[0].end() : copulas[-1].start()]
    if re.search(r"\d", between) or re.fullmatch(r"[\d\s.$]+", before) or _DOUBTS.search(before):
        return sentence  # the largest is 5 and the smallest is 2; it is wrong if x is 5
    return _whole(sentence[copulas[-1].end() :].strip(" *:"))


def last_value(text: str) -> str | None:
    """The formula or number that ends last, with all that belongs to it.

    None where there is none, or a word before or behind it says that it is not the value: not 5, minus 5, 5 million.
    """
    items = _items(text)
    values = [i for i, item in enumerate(items) if item.is_value]
    if not values:
        return None
    last = values[-1]
    before = items[last - 1].text.lower() if last else ""
    behind = items[last + 1].text.lower() if last + 1 < len(items) else ""
    if before in _SPOILS_BEHIND.split() or behind in _SPOILS_BEFORE.split():
        return None
    if before in ("and", "or") and last - 2 in values:
        return f"{items[last - 2].text}, {items[last].text}"
    return items[last].text


class _Item(NamedTuple):
    """A formula, a stretch of maths in plain text, or a word."""

    text: str
    is_value: bool


def _items(text: str) -> list[_Item]:
    found, start = [], 0
    for match in _MATHS.finditer(text):
        found += _plain_items(text[start : match.start()])
        found.append(_Item(next((content for content in match.groups() if content), ""), is_value=True))
        start = match.end()
    return found + _plain_items(text[start:])


def _plain_items(text: str) -> list[_Item]:
    found: list[_Item] = []
    run = ""  # of maths, that may go on
    for piece in [*_PIECE.findall(text), "\n"]:
        is_maths = _is_maths(piece)
        if is_maths and run and _goes_on(run, piece):
            run = f"{run} {piece}"
        else:
            found += _closed(run)
            run = piece if is_maths else ""
            word = "" if is_maths else piece.strip("*`'\"_,;:?.!() \n")
            found += [_Item(word, is_value=False)] if word else []
        if run.endswith((".", ";", "!", "?", ":")) or (run.endswith(",") and _level(run) <= 0):
            found += _closed(run)
            run = ""
    return found


def _closed(run: str) -> list[_Item]:
    text = run.strip("*`'\"_,;:?. ") if _level(run) == 0 else run
    return [_Item(text, is_value=_HAS_VALUE.search(text) is not None)] if text else []


def _goes_on(run: str, piece: str) -> bool:
    """Whether a piece behind a space belongs to the maths before it; in "5 a day" it does not."""
    return bool(
        _ENDS_OPEN.fullmatch(run)
        or _BEGINS_OPEN.match(piece)
        or _level(run) > 0
        or _COMMAND.match(run)
        or run in FUNCTIONS
        or (run.isdigit() and _FRACTION.match(piece))
    )


def _is_maths(piece: str) -> bool:
    words = _BEHIND_NUMBER.sub("", _COMMAND.sub("", piece))
    return not any(match[0] not in FUNCTIONS for match in _IS_WORD.finditer(words)) and piece != "\n"


def _level(text: str) -> int:
    """How many brackets are open."""
    return sum(text.count(sign) for sign in "([{") - sum(text.count(sign) for sign in ")]}")
