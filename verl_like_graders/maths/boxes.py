r"""The boxes of a response, ``\boxed{}`` and ``\fbox{}``, of which the last one holds the answer."""

from __future__ import annotations

import re

from verl_like_graders.maths.box_context import belonging

MAX_JOINED_BOXES = 10

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_WORD = re.compile(r"[^\s${}]+")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# Text between two boxes of one answer: \boxed{1} \quad \text{and} \quad \boxed{2}. The group is atomic because two of
# them follow each other. A possessive group, ()*+, would do the same, but those are flawed up to Python 3.11.4.
_BLANK = r"(?>(?:[\s$,;&*_]|\\[()\[\],;:! ]|\\q?quad(?![a-zA-Z]))*)"
_JOINS = r"(?:(?:and|or)(?:\s+(?:also|else|perhaps|possibly|maybe))?|as well as|plus|或者?|和|与|及|以及)"
_AND = rf"(?:{_JOINS}|\\(?:text[a-z]*|math[a-z]*|mbox)\s*\{{\s*,?\s*{_JOINS}\s*\}})?"
_BETWEEN_BOXES = re.compile(rf"{_BLANK}{_AND}{_BLANK}(?:[a-zA-Z](?:_\w)?\s*=\s*|\(?[a-z\d][).]\s*)?")


def boxed(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{}``, joined by commas to boxes directly before it, with the unit or base
    after it.

    Return None if there is no box, or if the last one never closes or is part of a formula.
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
    unit = belonging(text, following, end_of_all, content=contents[-1])
    if unit is None:
        return None
    contents[-1] += unit
    return ", ".join(dict.fromkeys(contents))


def has_box(text: str) -> bool:
    """Return whether a box opens in the text."""
    return _BOX.search(text) is not None


def _content(text: str, start: int) -> tuple[str | None, int]:
    """Return the content of the box that opens at ``start``, and its end; a box without braces holds a word."""
    if text[start : start + 1] != "{":
        word = _WORD.match(text, start)
        return (word[0], word.end()) if word else (None, start)
    level = 0
    for brace in _BRACE.finditer(text, start):
        level += {"{": 1, "}": -1}.get(brace[0], 0)
        if level == 0:
            return text[start + 1 : brace.start()], brace.end()
    return None, len(text)
