"""The values of expressions at a few points, in bounded time.

What is equal everywhere is equal there, and nothing has to be simplified. As long as a value is rational it is exact,
and so are the values of polynomials, since the points are rational (``points.py``). Other values have ``DIGITS``
digits, of which two equal ones share ``TOLERANCE``; what could hide a difference below that (a huge number plus a small
one, a function of almost nothing) has no value here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath

from verl_like.graders.maths.expression import Node, parse
from verl_like.graders.maths.leaf import Unreadable
from verl_like.graders.maths.points import Point, Scope, drawn_value, points

# Decimal digits of each value, and those that two values must share to be equal.
DIGITS, TOLERANCE = 150, 115
MAX_BITS = 4096  # of a number on the way to the value
MAX_FACTORIAL = 2000
MAX_ARGUMENT = 10**6  # of a function such as sin
MAX_HYPERBOLIC = 100  # tanh of more is 1 but for what we could not see
MAX_EXACT = 10**50  # above and below the line of a rational number that becomes a real one
MIN_ARGUMENT = Fraction(1, 10**25)  # of a function: cos of less is 1 but for what we could not see
MAX_RATIO = 10**45  # of the terms of a sum

Value = Any  # Fraction, or a real or complex number of mpmath
Term = str | Fraction  # an expression or a number
# Equal values at points of one sign do not make these equal: they have several branches.
_WITH_BRANCHES = frozenset(
    ["absolute", "root", "log", "ln", "lg", "floor", "ceil"]
    + [f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")]
)
_OF_WHOLE_NUMBERS = frozenset(["factorial", "double factorial", "binomial", "floor", "ceil"])

_CTX = mpmath.MPContext()
_CTX.dps = DIGITS


class _Unknown(Exception):
    """An expression without a value that we can find in bounded time."""


def are_close(a: Value, b: Value) -> bool:
    """Whether two values are the same, but for rounding where they are not rational; an approximation is not the
    number.
    """
    if a == b:
        return True
    if not a or not b or (isinstance(a, Fraction) and isinstance(b, Fraction)):
        return False
    try:
        a, b = _real(a), _real(b)
    except _Unknown:
        return False
    return bool(abs(a - b) <= _CTX.mpf(10) ** -TOLERANCE * max(abs(a), abs(b)))


def are_multiples(pairs: Sequence[tuple[Value, Value]], *, positive: bool) -> bool:
    """Whether the first of each pair is the same multiple of the second, and, if so asked, a positive one."""
    f, g = pairs[0]
    try:
        are_the_same = all(are_close(_times(u, g), _times(v, f)) for u, v in pairs)
        return are_the_same and not (positive and any(not _is_positive_multiple(u, v) for u, v in pairs))
    except _Unknown:
        return False


def _is_positive_multiple(a: Value, b: Value) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b > 0
    return bool(_CTX.re(_real(a) * _CTX.conj(_real(b))) > 0)


def values_of(*terms: Term) -> tuple[tuple[Value | None, ...], ...] | None:
    """The values of several expressions or numbers, each at the same points; these follow from all names together.

    A value is None where there is none, or none that we can find in bounded time. The whole is None where one of the
    expressions has no value at all.
    """
    formulas = [_formula(term) for term in terms if isinstance(term, str)]
    if None in formulas:
        return None
    scope = Scope.joined(formula.scope for formula in formulas if formula is not None)
    found = tuple(_values(term, scope) if isinstance(term, str) else (term,) * len(points(scope)) for term in terms)
    return found if all(any(value is not None for value in each) for each in found) else None


def has_values(term: Term) -> bool:
    return values_of(term) is not None


def are_same(a: Term, b: Term) -> bool:
    """Whether two expressions have the same values, at two points at least and wherever both have one."""
    if (found := values_of(a, b)) is None:
        return False
    both = [(u, v) for u, v in zip(*found, strict=True) if u is not None and v is not None]
    return len(both) >= 2 and all(are_close(u, v) for u, v in both)


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


@lru_cache(maxsize=8192)
def _values(text: str, scope: Scope) -> tuple[Value | None, ...]:
    formula = _formula(text)
    assert formula is not None, "only what was parsed is evaluated"
    if not formula.scope.names and not formula.scope.has_applications:
        return (_value_or_none(formula.tree, Point(index=0, drawn={})),) * len(points(scope))
    return tuple(_value_or_none(formula.tree, point) for point in points(scope))


def _value_or_none(tree: Node, point: Point) -> Value | None:
    try:
        return _value(tree, point)
    except (_Unknown, ArithmeticError, ValueError, TypeError, mpmath.libmp.NoConvergence):
        return None


def less(a: Value | None, b: Value | None) -> Value | None:
    """The difference of two values; None where it has none."""
    if a is None or b is None:
        return None
    try:
        return _sum([a, _times(Fraction(-1), b)])
    except _Unknown:
        return None


def _times(a: Value, b: Value) -> Value:
    """The product of two values."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return _real(a) * _real(b)


def _real(value: Value) -> Any:
    """A rational number as one of ``DIGITS`` digits."""
    if not isinstance(value, Fraction):
        return value
    if abs(value.numerator) > MAX_EXACT or value.denominator > MAX_EXACT:
        raise _Unknown
    return _CTX.mpf(value.numerator) / value.denominator


def _value(node: Node, point: Point) -> Value:
    """The node's value, its size bounded at every step."""
    if node.kind == "number":
        return node.number
    if node.kind == "symbol":
        return point.drawn[node.name]
    if node.kind in _CONSTANTS:
        return _CONSTANTS[node.kind]
    parts = [_value(part, point) for part in node.parts]
    if node.kind == "application":
        return drawn_value(f"{node.name}({_shown(parts[0])})", point.index)
    result = _OPERATIONS[node.kind](*parts) if node.kind in _OPERATIONS else _function(node.kind, *parts)
    if isinstance(result, Fraction):
        if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
            raise _Unknown
    elif not _CTX.isfinite(result) or (result and abs(_CTX.mag(result)) > MAX_BITS):
        raise _Unknown
    return result


def _sum(terms: list[Value]) -> Value:
    if all(isinstance(term, Fraction) for term in terms):
        return sum(terms, Fraction(0))
    reals = [_real(term) for term in terms]
    sizes = [abs(real) for real in reals if real]
    if sizes and max(sizes) > MAX_RATIO * min(sizes):
        raise _Unknown
    total = sum(reals, _CTX.mpf(0))
    return total if abs(total) > _CTX.mpf(10) ** -TOLERANCE * max(sizes, default=1) else Fraction(0)


def _quotient(over: Value, under: Value) -> Value:
    if not under:
        raise _Unknown
    return over / under if isinstance(over, Fraction) and isinstance(under, Fraction) else _real(over) / _real(under)


def _power(base: Value, exponent: Value) -> Value:
    if not base:
        if not isinstance(exponent, Fraction) or exponent <= 0:
            raise _Unknown
        return Fraction(0)
    if isinstance(exponent, Fraction):
        over, under = exponent.numerator, exponent.denominator
        if isinstance(base, Fraction):
            if under > 1 and (root := _exact_root(base, under)) is not None:
                base, under = root, 1
            if under == 1:
                size = max(base.numerator.bit_length(), base.denominator.bit_length())
                if abs(over) * size > MAX_BITS:
                    raise _Unknown
                return base**over
            # The real root, as a school would: \sqrt[3]{-8} is -2.
            if base < 0 and under % 2:
                return (-1) ** over * _power(-base, exponent)
    elif isinstance(base, Fraction) and base == 1:
        return base
    raised = _CTX.log(_real(base)) * _real(exponent)
    _check_argument(raised)
    return _real(base) ** _real(exponent)


def _exact_root(number: Fraction, degree: int) -> Fraction | None:
    """The rational root, where there is one; of a negative number that of an odd degree."""
    if degree > 64 or (number < 0 and degree % 2 == 0):
        return None
    roots = [_whole_root(abs(part), degree) for part in (number.numerator, number.denominator)]
    if roots[0] is None or roots[1] is None:
        return None
    return Fraction(roots[0], roots[1]) * (-1 if number < 0 else 1)


def _whole_root(number: int, degree: int) -> int | None:
    if number.bit_length() > MAX_BITS:
        return None
    found = 1 << -(-number.bit_length() // degree)  # not below the root; Newton's steps go down to it
    while (lower := ((degree - 1) * found + number // found ** (degree - 1)) // degree) < found:
        found = lower
    return found if found**degree == number else None


def _whole(value: Value, limit: int) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= limit:
        raise _Unknown
    return int(value)


def _double_factorial(value: Value) -> Value:
    return Fraction(math.prod(range(_whole(value, MAX_FACTORIAL), 0, -2)))


def _binomial(over: Value, under: Value) -> Value:
    chosen = _whole(under, MAX_FACTORIAL) if isinstance(under, Fraction) and under.denominator == 1 else None
    if chosen is not None and chosen <= 30 and isinstance(over, Fraction):  # a polynomial in what stands above
        product = Fraction(1)
        for i in range(chosen):
            product *= (over - i) / (i + 1)
        return product
    if isinstance(over, Fraction) and over.denominator == 1 and chosen is not None and over >= 0:
        return Fraction(math.comb(_whole(over, MAX_FACTORIAL), chosen))
    return _CTX.binomial(_real(over), _real(under))


def _rounded(value: Value, up: bool) -> Value:
    if isinstance(value, Fraction):
        return Fraction(math.ceil(value) if up else math.floor(value))
    if _CTX.im(value) or abs(value) > MAX_EXACT:
        raise _Unknown
    if abs(value - _CTX.nint(value)) < _CTX.mpf(10) ** -TOLERANCE:
        raise _Unknown
    return Fraction(int(_CTX.ceil(value) if up else _CTX.floor(value)))


def _check_argument(argument: Any) -> None:
    """Refuse an argument of which a function's value would tell too little."""
    if argument and not float(MIN_ARGUMENT) <= abs(argument) <= MAX_ARGUMENT:
        raise _Unknown


def _function(name: str, argument: Value, base: Value | None = None) -> Value:
    real = _real(argument)
    if name in ("log", "ln", "lg"):
        if not real:
            raise _Unknown
        under = _CTX.log(_real(base)) if base is not None else _CTX.mpf(1) if name == "ln" else _CTX.log(10)
        if not under:
            raise _Unknown
        return _snapped(_CTX.log(real) / under)
    _check_argument(real)
    if name.endswith("h") and abs(real) > MAX_HYPERBOLIC:
        raise _Unknown
    return _snapped(_FUNCTIONS[name](real))


def _snapped(value: Any) -> Value:
    """What is zero but for rounding is zero: sin(pi)."""
    return value if abs(value) > _CTX.mpf(10) ** -TOLERANCE else Fraction(0)


def _shown(value: Value) -> str:
    """Text that equal values share, near enough."""
    return str(value) if isinstance(value, Fraction) else str(_CTX.nstr(value, 40))


_CONSTANTS: dict[str, Any] = {"pi": +_CTX.pi, "e": +_CTX.e, "i": _CTX.mpc(0, 1)}
_OPERATIONS: dict[str, Callable[..., Value]] = {
    "sum": lambda *terms: _sum(list(terms)),
    "product": _times,
    "quotient": _quotient,
    "power": _power,
    "root": lambda value: _power(value, Fraction(1, 2)),
    "absolute": abs,
    "degrees": lambda value: _times(value, _CTX.pi / 180),
    "factorial": lambda value: Fraction(math.factorial(_whole(value, MAX_FACTORIAL))),
    "double factorial": _double_factorial,
    "binomial": _binomial,
    "floor": lambda value: _rounded(value, up=False),
    "ceil": lambda value: _rounded(value, up=True),
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": _CTX.exp,
    "sin": _CTX.sin,
    "cos": _CTX.cos,
    "tan": _CTX.tan,
    "cot": _CTX.cot,
    "sec": _CTX.sec,
    "csc": _CTX.csc,
    "arcsin": _CTX.asin,
    "arccos": _CTX.acos,
    "arctan": _CTX.atan,
    "arccot": _CTX.acot,
    "arcsec": _CTX.asec,
    "arccsc": _CTX.acsc,
    "sinh": _CTX.sinh,
    "cosh": _CTX.cosh,
    "tanh": _CTX.tanh,
    "coth": _CTX.coth,
}
