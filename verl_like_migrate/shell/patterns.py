"""Translate bash patterns into regular expressions, and cut and replace texts by them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from verl_like_migrate.shell.unknown import UnknownError

_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s"}
_BRACKETS = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|[^]])*)\]")
Parts = Sequence[tuple[str, bool]]  # texts, and whether they are quoted


def pattern(parts: Parts) -> str:
    """Return the regular expression of ``*``, ``?`` and ``[...]``; quoted parts match literally.

    Raises:
        UnknownError: the pattern has alternatives, ``@(a|b)``.
    """
    pieces: list[list[str]] = [[]]  # the parts between stars
    for text, is_quoted in parts:
        if not is_quoted and re.search(r"[?*+@!]\(", text):
            raise UnknownError(f"the pattern {text} has alternatives")
        at = 0
        while at < len(text):
            brackets = None if is_quoted else _BRACKETS.match(text, at)
            if brackets:
                inside = brackets[2].replace("\\", r"\\")
                inside = re.sub(r"\[(?!:)", r"\\[", inside)
                pieces[-1].append(f"[{'^' if brackets[1] else ''}{_with_classes(inside)}]")
                at = brackets.end()
            elif text[at] == "*" and not is_quoted:
                pieces.append([])
                at += 1
            else:
                pieces[-1].append("." if text[at] == "?" and not is_quoted else re.escape(text[at]))
                at += 1
    first, *between = map("".join, pieces)
    if not between:
        return first
    # Every star except the last matches as little as possible, atomically, which avoids backtracking.
    return f"{first}{''.join(f'(?>.*?{piece})' for piece in between[:-1] if piece)}.*{between[-1]}"


def regular_expression(parts: Parts) -> str:
    """Return the regular expression on the right of ``=~``."""
    return "".join(re.escape(text) if is_quoted else _with_classes(text) for text, is_quoted in parts)


def _with_classes(text: str) -> str:
    return re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match[1], ""), text)


def fits(text: str, expression: str) -> bool:
    """Return whether a pattern matches the whole text."""
    return re.fullmatch(expression, text, re.DOTALL) is not None


def without_end(text: str, expression: str, operator: str, *, made: Callable[[int], None]) -> str:
    """Apply ``#``, ``##``, ``%`` and ``%%`` to a text; ``made`` is called with the characters of each try."""
    lengths = range(len(text) + 1) if len(operator) == 1 else range(len(text), -1, -1)
    for length in lengths:
        rest = len(text) - length
        made(length + 1)
        if operator[0] == "#" and fits(text[:length], expression):
            return text[length:]
        if operator[0] == "%" and fits(text[rest:], expression):
            return text[:rest]
    return text


def replaced(text: str, expression: str, replacement: str, where: str, *, made: Callable[[int], None]) -> str:
    """Apply ``/``, ``//``, ``/#`` and ``/%`` to a text; ``where`` is the sign after the first slash.

    ``made`` is called with the characters of each replacement.
    """

    def replacing(match: re.Match[str]) -> str:
        made(len(replacement) + 1)
        return replacement

    if not expression and where not in ("#", "%"):
        return text
    anchored = {"#": rf"\A(?:{expression})", "%": rf"(?:{expression})\Z"}.get(where, expression)
    return re.sub(anchored, replacing, text, count=0 if where == "/" else 1, flags=re.DOTALL)


def recased(text: str, operator: str) -> str:
    """Apply ``^``, ``^^``, ``,`` and ``,,`` to a text."""
    change: Callable[[str], str] = str.upper if operator[0] == "^" else str.lower
    return change(text) if len(operator) == 2 else change(text[:1]) + text[1:]
