r"""The text around a position in a response: its formula, if it is in one, and the rest of the line."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_CHARS = 3000  # on each side

_POSITION = "\x00"
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_ENVIRONMENT = r"(?:align(?:ed|at)?|alignedat|equation|gather(?:ed)?|multline|split|array|cases|eqnarray|math)\*?"
_OPENING = re.compile(rf"(?<!\\)\\(?P<sign>[(\[])|\\begin\{{{_ENVIRONMENT}\}}(?:\{{[^{{}}]*\}})?")
_CLOSING = re.compile(rf"(?<!\\)\\[)\]]|\\end\{{{_ENVIRONMENT}\}}")
# A dollar sign opens maths if no space follows it, or if a space precedes the next one. Prices are not maths.
_INLINE = re.compile(
    r"(?<![\\$])\$(?=[^\s$])((?:[^$\\]|\\.)*)(?<=[^\s\\])\$(?!\d)"
    r"|(?<![\\$])\$[ \t]((?:[^$\\]|\\.)*)(?<=[ \t])\$",
    re.DOTALL,
)
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}(?![^\s{}]*\})")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,99}>")
_EMPHASIS = re.compile(r"(?<![a-zA-Z\d_*])(\*{1,3}|_{1,3}|`{1,3})(?=\S)([^\n]{1,200}?)(?<=\S)\1(?![a-zA-Z\d_*])")
_STRUCK = re.compile(r"~~[^~\n\x00]{1,200}~~")
_MARKS = re.compile(r"[*_`'\"“”\s]*")
# Emphasis whose other end is missing or on another line.
_EMPHASIS_OPENS = re.compile(r"((?:^|[a-zA-Z]{2}|[^\w\s=)\]}]) ?)(?:\*{1,3}|_{1,3})(?=[\x00$])")
_EMPHASIS_ENDS = re.compile(r"(?<=[\x00$)}\].])(?:\*{1,3}|_{1,3}|`)(?=\s*$|\s*[.,;:!?)]|\s+[a-zA-Z]{2})")
_BULLETS = re.compile(
    r"(?:\s|[-+*•‣◦▪●>–—]\s|#+|\d{1,3}(?:[)\]]|[.:]\s)|\([a-hA-H]\)|\((?:\d{1,3}|[ivx]{1,4})\)\s|[a-hA-H](?:\)|[.:]\s))*"
)


class Surroundings(NamedTuple):
    """The text before and after a position, in its paragraph, its formula (None in prose) and the rest of the line."""

    paragraph: str  # before the position
    formula: tuple[str, str] | None
    is_display: bool  # nothing outside the formula belongs to it
    line: tuple[str, str]  # without Markdown, bullets and tags


def surroundings(text: str, start: int, end: int) -> Surroundings:
    """Return the text around ``text[start:end]``, up to ``MAX_CHARS`` away on each side."""
    paragraph = _PARAGRAPH.split(text[:start])[-1]
    before = paragraph[-MAX_CHARS:]
    after = _PARAGRAPH.split(text[end : end + MAX_CHARS], maxsplit=1)[0]
    opening = max(_OPENING.finditer(before), key=lambda match: match.end(), default=None)
    if opening is not None and _CLOSING.search(before, opening.end()) is None:
        closing = _CLOSING.search(after)
        inside, outside = (after[: closing.start()], after[closing.end() :]) if closing else (after, "")
        line = _plain_line(before[: opening.start()], outside)
        return Surroundings(before, _unmarked(before[opening.end() :], inside), opening["sign"] != "(", line)
    if "$$" in after and paragraph.count("$$") % 2:
        outer, _, inner = before.rpartition("$$")
        inside, _, outside = after.partition("$$")
        return Surroundings(before, _unmarked(inner, inside), True, _plain_line(outer, outside))
    for match in _INLINE.finditer(f"{before}{_POSITION}{after}"):
        if match.start() < len(before) < match.end():
            formula = match[1] or match[2]
            if "\n" in formula and _WORD.search(formula):
                break
            inner, _, inside = formula.partition(_POSITION)
            line = _plain_line(before[: match.start()], after[match.end() - len(before) - 1 :])
            return Surroundings(before, _unmarked(inner, inside), False, line)
    return Surroundings(before, None, False, _plain_line(before, after))


def _unmarked(before: str, after: str) -> tuple[str, str]:
    """Return both sides of a formula, without Markdown or quotes if these are all that surrounds the position."""
    opening, closing = before.strip(), after.strip()
    is_marked = opening and _MARKS.fullmatch(opening) and closing[: len(opening)][::-1].replace("”", "“") == opening
    return ("", closing[len(opening) :]) if is_marked else (before, after)


def _plain_line(left: str, right: str) -> tuple[str, str]:
    """Return the line on both sides of the position, without Markdown and HTML."""
    newline = "\n"
    line = f"{left.rpartition(newline)[2]}{_POSITION}{right.partition(newline)[0]}"
    line = _STRUCK.sub("", _TAG.sub("", line))
    for _ in range(2):  # *_5_*
        line = _EMPHASIS.sub(r"\2", line)
    line = _EMPHASIS_ENDS.sub("", _EMPHASIS_OPENS.sub(r"\1", line))
    if line.lstrip().startswith("|") and line.count("|") > 2:
        line = line.replace("|", ";")  # a table's row
    left, _, right = line.partition(_POSITION)
    bullets = _BULLETS.match(left)
    return left[bullets.end() :] if bullets else left, right
