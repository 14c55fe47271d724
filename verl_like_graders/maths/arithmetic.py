"""Arithmetic with the values of an expression, with a bound on the size of every intermediate value.

A value stays rational as long as possible. Otherwise it has ``DIGITS`` digits, and equal values agree in ``TOLERANCE``
of them. An operation that could hide a smaller difference has no value: a huge number plus a small one, or a function
of almost zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath

from verl_like_graders.maths.expression import Node
from verl_like_graders.maths.points import Point, drawn_value

# Decimal digits of each value, and the number of digits in which equal values must agree.
DIGITS, TOLERANCE = 150, 115
MAX_BITS = 4096  # of an intermediate number
MAX_FACTORIAL = 2000
MAX_ARGUMENT = 10**6  # of a function such as sin
MAX_HYPERBOLIC = 100  # beyond it, tanh differs from 1 by less than we resolve
MAX_EXACT = 10**50  # limit on numerator and denominator of a rational number that is converted to a float
MIN_ARGUMENT = Fraction(1, 10**25)  # of a function: below it, cos differs from 1 by less than we resolve
MAX_RATIO = 10**45  # between the terms of a sum

Value = Any  # Fraction, or a real or complex mpmath number

_CTX = mpmath.MPContext()
_CTX.dps = DIGITS


class Unknown(Exception):
    """Raised if no value of an expression can be found in bounded time."""


def are_close(a: Value, b: Value) -> bool:
    """Return whether two values are equal.

    Rational values are compared exactly, others up to rounding. An approximation does not equal the exact number.
    """
    if a == b:
        return True
    if not a or not b or (isinstance(a, Fraction) and isinstance(b, Fraction)):
        return False
    try:
        a, b = real(a), real(b)
    except Unknown:
        return False
    return bool(abs(a - b) <= _CTX.mpf(10) ** -TOLERANCE * max(abs(a), abs(b)))


def is_positive_multiple(a: Value, b: Value) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b > 0
    return bool(_CTX.re(real(a) * _CTX.conj(real(b))) > 0)


def is_near(exact: Value, rounded: Value, *, places: int) -> bool:
    """Return whether ``rounded`` may be ``exact`` rounded: within 5%, or half a unit of the last decimal place."""
    try:
        distance = abs(real(exact) - real(rounded))
        return bool(distance <= max(abs(real(exact)) / 20, _CTX.mpf(10) ** -places / 2))
    except Unknown:
        return False


def is_real(value: Value | None) -> bool:
    return isinstance(value, Fraction) or (value is not None and not _CTX.im(value))


def less(a: Value | None, b: Value | None) -> Value | None:
    """Return ``a - b``, or None if it has no value."""
    if a is None or b is None:
        return None
    try:
        return _sum([a, times(Fraction(-1), b)])
    except Unknown:
        return None


def is_less(a: Value, b: Value) -> bool:
    """Return whether ``a`` is less than ``b`` by more than rounding; both are real."""
    return not are_close(a, b) and bool((less(a, b) or 0) < 0)


def times(a: Value, b: Value) -> Value:
    """Return the product of two values."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return real(a) * real(b)


def real(value: Value) -> Any:
    """Return a rational number as an mpmath number of ``DIGITS`` digits."""
    if not isinstance(value, Fraction):
        return value
    if abs(value.numerator) > MAX_EXACT or value.denominator > MAX_EXACT:
        raise Unknown
    return _CTX.mpf(value.numerator) / value.denominator


def value_at(node: Node, point: Point) -> Value:
    """Return the node's value at a point, with a bound on the size at every step."""
    if node.kind == "number":
        return node.number
    if node.kind == "symbol":
        return point.drawn[node.name]
    if node.kind in _CONSTANTS:
        return _CONSTANTS[node.kind]
    parts = [value_at(part, point) for part in node.parts]
    if node.kind == "application":
        return drawn_value(f"{node.name}({_shown(parts[0])})", point.index)
    result = _OPERATIONS[node.kind](*parts) if node.kind in _OPERATIONS else _function(node.kind, *parts)
    if isinstance(result, Fraction):
        if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
            raise Unknown
    elif not _CTX.isfinite(result) or (result and abs(_CTX.mag(result)) > MAX_BITS):
        raise Unknown
    return result


def _sum(terms: list[Value]) -> Value:
    if all(isinstance(term, Fraction) for term in terms):
        return sum(terms, Fraction(0))
    reals = [real(term) for term in terms]
    sizes = [abs(real) for real in reals if real]
    if sizes and max(sizes) > MAX_RATIO * min(sizes):
        raise Unknown
    total = sum(reals, _CTX.mpf(0))
    return total if abs(total) > _CTX.mpf(10) ** -TOLERANCE * max(sizes, default=1) else Fraction(0)


def _quotient(over: Value, under: Value) -> Value:
    if not under:
        raise Unknown
    return over / under if isinstance(over, Fraction) and isinstance(under, Fraction) else real(over) / real(under)


def _power(base: Value, exponent: Value) -> Value:
    if not base:
        if not isinstance(exponent, Fraction) or exponent <= 0:
            raise Unknown
        return Fraction(0)
    if isinstance(exponent, Fraction):
        over, under = exponent.numerator, exponent.denominator
        if isinstance(base, Fraction):
            if under > 1 and (root := _exact_root(base, under)) is not None:
                base, under = root, 1
            if under == 1:
                size = max(base.numerator.bit_length(), base.denominator.bit_length())
                if abs(over) * size > MAX_BITS:
                    raise Unknown
                return base**over
            # Take the real root, as taught in school: \sqrt[3]{-8} is -2.
            if base < 0 and under % 2:
                return (-1) ** over * _power(-base, exponent)
    elif isinstance(base, Fraction) and base == 1:
        return base
    raised = _CTX.log(real(base)) * real(exponent)
    _check_argument(raised)
    return real(base) ** real(exponent)


def _exact_root(number: Fraction, degree: int) -> Fraction | None:
    """Return the rational root, or None if there is none. A negative number has one only of odd degree."""
    if degree > 64 or (number < 0 and degree % 2 == 0):
        return None
    roots = [_whole_root(abs(part), degree) for part in (number.numerator, number.denominator)]
    if roots[0] is None or roots[1] is None:
        return None
    return Fraction(roots[0], roots[1]) * (-1 if number < 0 else 1)


def _whole_root(number: int, degree: int) -> int | None:
    if number.bit_length() > MAX_BITS:
        return None
    found = 1 << -(-number.bit_length() // degree)  # at or above the root; Newton's steps decrease to it
    while (lower := ((degree - 1) * found + number // found ** (degree - 1)) // degree) < found:
        found = lower
    return found if found**degree == number else None


def _whole(value: Value, limit: int) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= limit:
        raise Unknown
    return int(value)


def _double_factorial(value: Value) -> Value:
    return Fraction(math.prod(range(_whole(value, MAX_FACTORIAL), 0, -2)))


def _binomial(over: Value, under: Value) -> Value:
    chosen = _whole(under, MAX_FACTORIAL) if isinstance(under, Fraction) and under.denominator == 1 else None
    if chosen is not None and chosen <= 30 and isinstance(over, Fraction):  # a polynomial in the upper argument
        product = Fraction(1)
        for i in range(chosen):
            product *= (over - i) / (i + 1)
        return product
    if isinstance(over, Fraction) and over.denominator == 1 and chosen is not None and over >= 0:
        return Fraction(math.comb(_whole(over, MAX_FACTORIAL), chosen))
    return _CTX.binomial(real(over), real(under))


def _rounded(value: Value, up: bool) -> Value:
    if isinstance(value, Fraction):
        return Fraction(math.ceil(value) if up else math.floor(value))
    if _CTX.im(value) or abs(value) > MAX_EXACT:
        raise Unknown
    if abs(value - _CTX.nint(value)) < _CTX.mpf(10) ** -TOLERANCE:
        raise Unknown
    return Fraction(int(_CTX.ceil(value) if up else _CTX.floor(value)))


def _check_argument(argument: Any) -> None:
    """Raise Unknown for an argument at which a function's value is not precise enough."""
    if argument and not float(MIN_ARGUMENT) <= abs(argument) <= MAX_ARGUMENT:
        raise Unknown


def _function(name: str, argument: Value, base: Value | None = None) -> Value:
    number = real(argument)
    if name in ("log", "ln", "lg"):
        if not number:
            raise Unknown
        under = _CTX.log(real(base)) if base is not None else _CTX.mpf(1) if name == "ln" else _CTX.log(10)
        if not under:
            raise Unknown
        return _snapped(_CTX.log(number) / under)
    _check_argument(number)
    if name.endswith("h") and abs(number) > MAX_HYPERBOLIC:
        raise Unknown
    return _snapped(_FUNCTIONS[name](number))


def _snapped(value: Any) -> Value:
    """Return zero for a value that is zero up to rounding, as sin(pi) is."""
    return value if abs(value) > _CTX.mpf(10) ** -TOLERANCE else Fraction(0)


def _shown(value: Value) -> str:
    """Return a text that nearly equal values share."""
    return str(value) if isinstance(value, Fraction) else str(_CTX.nstr(value, 40))


_CONSTANTS: dict[str, Any] = {"pi": +_CTX.pi, "e": +_CTX.e, "i": _CTX.mpc(0, 1)}
_OPERATIONS: dict[str, Callable[..., Value]] = {
    "sum": lambda *terms: _sum(list(terms)),
    "product": times,
    "quotient": _quotient,
    "power": _power,
    "root": lambda value: _power(value, Fraction(1, 2)),
    "absolute": abs,
    "degrees": lambda value: times(value, _CTX.pi / 180),
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
