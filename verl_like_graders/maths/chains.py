"""Chains such as x = a = b or a = b, rounded: find the side that is the answer, and check that the chain
may be true.
"""

from __future__ import annotations

import re

from verl_like_graders.maths.leaf import Unreadable
from verl_like_graders.maths.names import UNEVALUATED, name_of
from verl_like_graders.maths.splitting import split
from verl_like_graders.maths.units import without_unit
from verl_like_graders.maths.values import are_same, has_values, may_be_rounded

LETTERS = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]|\\(?:alpha|beta|gamma|theta|phi|lambda|mu|rho|sigma|omega)(?![a-zA-Z])")
# The end of a side that may be the left side of the next equation: the y of x = 1 y = 2.
_ENDS_IN_NAME = re.compile(r"(?:\d\s*|[\s)\]}])\\?[a-zA-Z]+(?:_\{\w+\})?\Z")


def exact_side(text: str) -> str:
    """Return the text before an approximation sign, or the approximation if that text is empty or a name.

    Raises:
        Unreadable: the two values are not near each other.
    """
    pieces = split(text, {r"\approx"})[0]
    if len(pieces) == 1:
        return text
    if not pieces[0].strip():
        return pieces[1]
    if name_of(pieces[0]):
        return f"{pieces[0]}={pieces[1]}"
    exact = split(pieces[0], {"="})[0][-1]
    if not all(may_be_rounded(without_unit(exact)[0], without_unit(piece)[0]) for piece in pieces[1:]):
        raise Unreadable("it approximates a number by one that is not near")
    return pieces[0]


def check_chain(sides: list[str], names: list[str]) -> None:
    """Refuse ``x = a = b`` unless a is b, or a form of b: a sum, an integral, or a formula with other names.

    Raises:
        Unreadable: a may be something else, as in x = 1 x = 2.
    """
    for side, name in zip(sides[1:-1], names[1:-1], strict=True):
        if name or UNEVALUATED.fullmatch(side) or are_same(side, sides[-1]):
            continue
        is_formula = LETTERS.search(side) and has_values(side) and not LETTERS.search(sides[-1])
        if not is_formula or _ENDS_IN_NAME.search(side) or names[0] in side:
            raise Unreadable("it is a chain of equations that are not known to be true")
