r"""The left side of an answer's equals sign: ``x``, ``f(x)``, ``Area``, ``P(X=2)``, ``|AB|``."""

from __future__ import annotations

import re

from verl_like_graders.maths.expression import FUNCTIONS
from verl_like_graders.maths.units import squeezed

MAX_NAME = 80

NAME = (
    r"(?:\\?[a-zA-Z]+(?: [a-zA-Z]+)*|\\frac\{d[a-z]?\}\{d[a-z]\}|\\angle "
    r"?[A-Z]+)'*(?:_(?:\w|\{[^{}]{1,30}\}))?(?:(?:\^\{-1\})?\([^()=<>]{1,12}\))?"
)
_NAME = re.compile(NAME)
_NAMES = re.compile(r"\(\\?[a-zA-Z]+(?:_\{\w+\})?(?:,\\?[a-zA-Z]+(?:_\{\w+\})?)+\)")  # as in (x,y) = (3,4)
_VARIABLE = re.compile(r"\\?[a-zA-Z]+")
_COORDINATES = ([r"\rho", r"\theta", r"\phi"], [r"\rho", r"\theta"], [r"\rho", r"\phi", r"\theta"])
_SEGMENT = r"(?:\|?\\overline\{[A-Z]{2}\}\|?|\|[A-Z]{2}\||[A-Z]{2})(?:'|\^\{\d\})*"
_VECTOR = r"\\(?:vec|mathbf|overrightarrow|hat)\{[^{}]+\}"
_ANGLE = r"(?:[A-Z]|\\(?:alpha|beta|gamma|theta|phi|varphi)|\\angle ?[A-Z]+)"
# Quantities named after their object. An equation to be solved, such as |x| = 5 or 2x = 5, is not a name.
_QUANTITIES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:P|Pr|\\Pr|\\mathbb\{[PE]\}|E|Var|Cov|SD)(?:_\{[^{}]*\})?(?:\(.+\)|\[.+\])",
        r"[nN#]\(?[A-Z](?:(?:\\cup|\\cap|\\setminus) ?[A-Z])*\)?",
        r"[a-zA-Z]{1,2}(?::[a-zA-Z]{1,2})+",
        r"[a-zA-Z]'*\([a-zA-Z]\([^()=<>]{1,12}\)\)",
        rf"{_SEGMENT}(?:(?:\+|-|/|:|\\cdot ?)?{_SEGMENT})*",
        rf"\\frac\{{{_SEGMENT}\}}\{{{_SEGMENT}\}}",
        r"\|?\\overline\{[A-Z]{2,3}\}\|?|\\(?:widehat|overarc|wideparen)\{[A-Z]{2,3}\}|\[[A-Z]{3,6}\]",
        rf"(?:\||\\\|)?{_VECTOR}(?:\||\\\|)?",
        rf"\\(?:sin|cos|tan|cot|sec|csc)(?: ?{_ANGLE}|\({_ANGLE}\))",
        r"\\(?:max|min|gcd|lcm|deg|dim|det|sup|inf)(?![a-zA-Z])(?:_\{[^{}]*\})? ?[^=<>]+",
        r"\\(?:sum|int|prod|lim|iint|oint)(?![a-zA-Z]).+",
        r"(?:[a-zA-Z]{3,}|of|the|in)(?:[ ,-](?:[a-zA-Z]+|\\(?:triangle|angle|overline) ?\{?[A-Z]+\}?))*",
    )
)
_TERM = r"\d*(?:[a-df-hj-zA-Z]|\\(?:alpha|beta|gamma))(?:_\{\w+\})?"  # not e and i, which are numbers
_SUM = re.compile(rf"-?{_TERM}(?:[+-]{_TERM})+")
# Words that keep text such as "half of x = 5" from being a name.
_NO_NAME = re.compile(
    r"\b(?:not|never|no|wrong|incorrect|false|unless|if|or|and|maybe|perhaps|possibly|half|twice|double|triple|third"
    r"|quarter|negative|minus|plus|times|reciprocal|inverse|opposite|squared?|cubed?|roots?|log)\b",
    re.IGNORECASE,
)
_FUNCTION = re.compile(rf"\\(?:{'|'.join(FUNCTIONS)})(?![a-zA-Z])")  # ln x = 3 is an equation to be solved
UNEVALUATED = re.compile(
    r"-?(?:\d+|\\frac\{\d+\}\{\d+\})?\\(?:sum|int|prod|lim|iint|oint|gcd|lcm|det|max|min)(?![a-zA-Z]).+"
)


def name_of(text: str) -> str:
    """Return the text in uniform spelling if it is a name, such as x, f(x) and Area, else ""."""
    name = squeezed(re.sub(r"\\text\{([^{}]*)\}", r"\1", text))
    if not name or len(name) > MAX_NAME or name in (r"\infty", r"\pi") or _NO_NAME.search(name):
        return ""
    if (_NAME.fullmatch(name) and not _FUNCTION.match(name)) or any(
        quantity.fullmatch(name) and _is_closed(name) for quantity in _QUANTITIES
    ):
        return re.sub(r"\||\\overline\{([A-Z]{2})\}", r"\1", name)  # |AB| and AB are one length
    return name if _NAMES.fullmatch(name) and _in_order(name[1:-1].split(",")) else ""


def is_sum(text: str) -> bool:
    """Return whether the text adds several names, as m+n and 100m+n do.

    Such a sum is a quantity. 2m is not: 2m = 5 is an equation to be solved for m.
    """
    text = squeezed(text)
    names = re.findall(r"\\?[a-zA-Z]+(?:_\{\w+\})?", text)
    return _SUM.fullmatch(text) is not None and len(set(names)) == len(names)


def is_variable(name: str) -> bool:
    """Return whether the text is a bare name, as x and AB are, and not computable, as f(2) is."""
    return _VARIABLE.fullmatch(name) is not None


def _is_closed(name: str) -> bool:
    """Return whether no bracket closes before the end: P(A)P(B) is a product."""
    level = 0
    for i, sign in enumerate(name):
        level += (sign in "([{") - (sign in ")]}")
        if level == 0 and sign in ")]" and i < len(name) - 1 and name[0] in "PEVCS\\":
            return name.startswith((r"\sum", r"\int", r"\prod", r"\lim", r"\max", r"\min", r"\frac", r"\det"))
    return level == 0


def _in_order(names: list[str]) -> bool:
    """Return whether coordinate names are in their usual sequence, so that an answer may omit them."""
    return names == sorted(names, key=lambda name: name.lstrip("\\")) or names in _COORDINATES
