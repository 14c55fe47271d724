"""Split text at separators outside brackets."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_like_graders.maths.leaf import Unreadable

TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
OPEN, CLOSE = {"(", "[", "{", r"\{", r"\begin"}, {")", "]", "}", r"\}", r"\end"}
_MODULUS = re.compile(r"\s*\\pmod\{\w+\}\s*\Z")


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Return the pieces between separators outside all brackets, and those separators.

    Raises:
        Unreadable: brackets are unbalanced. The ( and ] of an interval are balanced.
    """
    pieces: list[list[str]] = [[]]
    found, level = [], 0
    for token in TOKEN.findall(text):
        level += (token in OPEN) - (token in CLOSE)
        if level < 0:
            break
        if level == 0 and token in separators:
            found.append(token)
            pieces.append([])
        else:
            pieces[-1].append(token)
    if level:
        raise Unreadable("its brackets are not balanced")
    return ["".join(piece) for piece in pieces], found


def filled(text: str, separators: set[str]) -> list[str]:
    return [part for part in split(text, separators)[0] if part.strip(" ,;.")]


def with_modulus(texts: Sequence[str]) -> list[str]:
    """Give each residue the modulus of the last one: 1, 4 (mod 5)."""
    modulus = _MODULUS.search(texts[-1])
    if modulus is None or r"\pmod" in "".join(texts[:-1]):
        return list(texts)
    return [f"{text}{modulus[0]}" for text in texts[:-1]] + [texts[-1]]
