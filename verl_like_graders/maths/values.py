"""The values of expressions at a few points, in bounded time.

Expressions that are equal everywhere are equal at these points, so nothing has to be simplified. A rational value is
exact. Values of polynomials are exact too, because the points are rational (``points.py``). Other values have
``DIGITS`` digits (``arithmetic.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import mpmath

from verl_like_graders.maths.arithmetic import (
    Unknown,
    Value,
    are_close,
    is_near,
    is_positive_multiple,
    is_real,
    times,
    value_at,
)
from verl_like_graders.maths.expression import Node, parse
from verl_like_graders.maths.leaf import Unreadable
from verl_like_graders.maths.points import Scope, points

Term = str | Fraction  # an expression or a number
# With these, equal values at points of one sign do not prove equality, because the functions have several branches.
_WITH_BRANCHES = frozenset(
    ["absolute", "root", "log", "ln", "lg", "floor", "ceil"]
    + [f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")]
)
_OF_WHOLE_NUMBERS = frozenset(["factorial", "double factorial", "binomial", "floor", "ceil"])


def are_multiples(pairs: Sequence[tuple[Value, Value]], *, positive: bool) -> bool:
    """Return whether all first values are the same multiple of their second value, a positive one if ``positive``."""
    f, g = pairs[0]
    try:
        are_the_same = all(are_close(times(u, g), times(v, f)) for u, v in pairs)
        return are_the_same and not (positive and any(not is_positive_multiple(u, v) for u, v in pairs))
    except Unknown:
        return False


def values_of(*terms: Term) -> tuple[tuple[Value | None, ...], ...] | None:
    """Return the values of several expressions or numbers at common points, which depend on all their names.

    A value is None if it does not exist or cannot be found in bounded time. The result is None if one of the
    expressions has no value at any point.
    """
    if (scope := _joined(*terms)) is None:
        return None
    found = tuple(tuple(_value(term, scope, index) for index in range(len(points(scope)))) for term in terms)
    return found if all(any(value is not None for value in each) for each in found) else None


def has_values(term: Term) -> bool:
    """Return whether an expression has a value at some point."""
    scope = _joined(term)
    return scope is not None and any(_value(term, scope, index) is not None for index in range(len(points(scope))))


def are_same(a: Term, b: Term) -> bool:
    """Return whether two expressions agree at two or more points, and wherever both have a value."""
    if (scope := _joined(a, b)) is None:
        return False
    num_both = 0
    for index in range(len(points(scope))):
        u, v = _value(a, scope, index), _value(b, scope, index)
        if u is not None and v is not None:
            if not are_close(u, v):
                return False
            num_both += 1
    return num_both >= 2


def may_be_rounded(exact: str, rounded: str) -> bool:
    """Return whether ``rounded`` is near ``exact``: within 5%, or half a unit of its last decimal place."""
    found = values_of(exact, rounded)
    a, b = (each[0] for each in found) if found is not None else (None, None)
    if a is None or b is None:
        return False
    decimals = re.fullmatch(r"[^.]*(?:\.(\d*))?[^.]*", rounded)
    return is_near(a, b, places=len((decimals and decimals[1]) or ""))


def real_value(term: Term) -> Value | None:
    """Return the real number that an expression without names equals, or None."""
    if isinstance(term, Fraction):
        return term
    formula = _formula(term)
    if formula is None or formula.scope.names or formula.scope.has_applications:
        return None
    value = _value(term, formula.scope, 0)
    return value if is_real(value) else None


@dataclass(frozen=True, slots=True)
class _Formula:
    tree: Node
    scope: Scope


@lru_cache(maxsize=8192)
def _formula(text: str) -> _Formula | None:
    """Return an expression's tree and the scope of its points, or None if the text is not an expression."""
    try:
        tree = parse(text)
    except (Unreadable, ArithmeticError, ValueError):
        return None
    nodes = list(_nodes(tree))
    kinds = {node.kind for node in nodes}
    has_branches = not kinds.isdisjoint(_WITH_BRANCHES) or any(
        node.kind == "power" and not (node.parts[1].kind == "number" and node.parts[1].number.denominator == 1)
        for node in nodes
    )
    return _Formula(
        tree,
        Scope(
            names=tuple(sorted({node.name for node in nodes if node.kind == "symbol"})),
            has_branches=has_branches,
            is_of_whole_numbers=not kinds.isdisjoint(_OF_WHOLE_NUMBERS),
            has_applications="application" in kinds,
        ),
    )


def _nodes(tree: Node) -> list[Node]:
    found = [tree]
    for node in found:  # the list grows during the loop
        found += node.parts
    return found


def _joined(*terms: Term) -> Scope | None:
    """Return the scope in which the terms are compared, or None if one is not an expression."""
    formulas = [_formula(term) for term in terms if isinstance(term, str)]
    return None if None in formulas else Scope.joined(formula.scope for formula in formulas if formula is not None)


def _value(term: Term, scope: Scope, index: int) -> Value | None:
    """Return the term's value at a point, or None if it does not exist or cannot be found in bounded time."""
    if isinstance(term, Fraction):
        return term
    formula = _formula(term)
    assert formula is not None, "only what was parsed is evaluated"
    is_constant = not formula.scope.names and not formula.scope.has_applications
    return _evaluated(term, Scope(), 0) if is_constant else _evaluated(term, scope, index)


@lru_cache(maxsize=65536)
def _evaluated(text: str, scope: Scope, index: int) -> Value | None:
    formula = _formula(text)
    assert formula is not None, "only what was parsed is evaluated"
    try:
        return value_at(formula.tree, points(scope)[index])
    except (Unknown, ArithmeticError, ValueError, TypeError, mpmath.libmp.NoConvergence):
        return None
