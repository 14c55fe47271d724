"""The values of expressions at a few points, in bounded time.

What is equal everywhere is equal there, and nothing has to be simplified. As long as a value is rational it is exact,
and so are the values of polynomials, since the points are rational (``points.py``). Other values have ``DIGITS``
digits (``arithmetic.py``).
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
# Equal values at points of one sign do not make these equal: they have several branches.
_WITH_BRANCHES = frozenset(
    ["absolute", "root", "log", "ln", "lg", "floor", "ceil"]
    + [f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")]
)
_OF_WHOLE_NUMBERS = frozenset(["factorial", "double factorial", "binomial", "floor", "ceil"])


def are_multiples(pairs: Sequence[tuple[Value, Value]], *, positive: bool) -> bool:
    """Whether the first of each pair is the same multiple of the second, and, if so asked, a positive one."""
    f, g = pairs[0]
    try:
        are_the_same = all(are_close(times(u, g), times(v, f)) for u, v in pairs)
        return are_the_same and not (positive and any(not is_positive_multiple(u, v) for u, v in pairs))
    except Unknown:
        return False


def values_of(*terms: Term) -> tuple[tuple[Value | None, ...], ...] | None:
    """The values of several expressions or numbers, each at the same points; these follow from all names together.

    A value is None where there is none, or none that we can find in bounded time. The whole is None where one of the
    expressions has no value at all.
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
    """Whether the second is near the first: by 5%, or by a half of its last decimal place."""
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
    """The tree of an expression, and what decides where it is evaluated; None for what is no expression."""
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
    for node in found:  # grows on the way
        found += node.parts
    return found


def _joined(*terms: Term) -> Scope | None:
    """What decides where the terms are compared; None where one is no expression."""
    formulas = [_formula(term) for term in terms if isinstance(term, str)]
    return None if None in formulas else Scope.joined(formula.scope for formula in formulas if formula is not None)


def _value(term: Term, scope: Scope, index: int) -> Value | None:
    """The term's value at a point; None where it has none, or none that we can find in bounded time."""
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
