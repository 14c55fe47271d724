"""The values of an expression in LaTeX, in bounded time.

math-verify parses; we then *evaluate*, to 120 digits at a few points: what is equal everywhere is equal there, and
nothing has to be simplified. math-verify's own ``verify`` calls ``sympy.simplify``, which may never return (9**9**9**9,
99999999!), and its timeouts take the process's alarm signal.
"""

from __future__ import annotations

import logging
import re
import zlib
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import sympy
from antlr4.dfa.DFA import DFA
from latex2sympy2_extended import NormalizationConfig
from latex2sympy2_extended.antlr_parser import PSLexer, PSParser
from math_verify import LatexExtractionConfig, parse

MAX_CHARS = 300  # of an expression; the parser takes milliseconds per sign
MAX_DEPTH = 7  # of brackets within brackets; the parser's time doubles with every few
MAX_BITS = 100_000  # of a number on the way to the value
MAX_FACTORIAL = 2000
MAX_ARGUMENT = 10**6  # of a function such as sin
MAX_TABLE_ENTRIES = 100_000  # of the parser's tables, about 70 MB
NUM_POINTS = 4
# Decimal digits of each value, and those that two values must share to be equal.
DIGITS, TOLERANCE = 120, 100

_CTX = mpmath.MPContext()
_CTX.dps = DIGITS
# The text comes in uniform LaTeX: math-verify shall neither strip units nor look for boxes.
_AS_WRITTEN = (
    LatexExtractionConfig(
        try_extract_without_anchor=False,
        boxed_match_priority=0,
        normalization_config=NormalizationConfig(
            basic_latex=False, units=False, malformed_operators=False, nits=False, boxed="last"
        ),
    ),
)
# Any other command (integrals, sums, limits, determinants, gcd) may cost any time while it is parsed.
_COMMAND = re.compile(
    r"\\(?!(?:frac|sqrt|cdot|div|pi|binom|log|ln|exp|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|[lr]floor|[lr]ceil|alpha|beta"
    r"|gamma|delta|epsilon|varepsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|varphi|chi|psi|omega)(?![a-zA-Z]))"
)
_SIGNS = re.compile(r"[0-9A-Za-z\\{}()\[\]^_+\-*/.|! ]*")
# math-verify 0.9.0 evaluates binomials and the index of a root as it parses, drops a number's subscript, transposes
# x^T, and reads !! as (n!)!.
_REFUSED = re.compile(
    r"\\binom(?!\{[a-zA-Z\d]{1,4}\}\{[a-zA-Z\d]{1,4}\})|\\sqrt\[(?![\da-z]{1,3}\])|(?<!\\sqrt)\[|\d_|!!|\|[_^]"
    r"|\^\{?T|\d \d|(?<![a-zA-Z_^}\]]){|\d{61}"
)
_LOG_BASE = re.compile(r"\\log_(\w) ?")
# math-verify 0.9.0 takes 2(3) and \frac{4}{2}\frac{1}{2} for mixed numbers.
_HAS_POWER_OF_FUNCTION = re.compile(r"\\(?:log|ln|a?r?c?(?:sin|cos|tan|cot|sec|csc)h?) ?[\^_]")
_PRODUCT = re.compile(r"(?<=[\d)!])(?=\()|(?<=[)!])(?=\d|\\frac)|(?<=\})(?=\()|(?<=\})(?=\\frac)")


class _Unknown(Exception):
    """An expression without a value that we can find in bounded time."""


def are_close(a: Any, b: Any) -> bool:
    """Whether two values are the same but for rounding; an approximation is not the number.

    Relative to the values, because 2^{-400} is not 2^{-401}; but sin(pi) is 0.
    """
    scale = max(abs(a), abs(b)) if a and b else 1
    return bool(abs(a - b) <= _CTX.mpf(10) ** -TOLERANCE * scale)


def real_part_of_ratio(a: Any, b: Any) -> Any:
    """Positive where a / b is, without dividing by zero."""
    return _CTX.re(a * _CTX.conj(b))


def from_fraction(number: Fraction) -> Any:
    """The number with ``DIGITS`` digits."""
    return _CTX.mpf(number.numerator) / number.denominator


@lru_cache(maxsize=8192)
def values(text: str) -> tuple[Any, ...] | None:
    """The expression's values at ``NUM_POINTS`` points, where each symbol's is drawn from its name.

    None where it has no value, or none that we can find in bounded time.
    """
    parsed = _parsed(text)
    if parsed is None:
        return None
    try:
        return tuple(_value(parsed, point) for point in range(NUM_POINTS))
    except (_Unknown, ArithmeticError, ValueError, TypeError, mpmath.libmp.NoConvergence):
        return None


def _parsed(text: str) -> sympy.Basic | None:
    text = _LOG_BASE.sub(r"\\log_{\1}", text)
    if len(text) > MAX_CHARS or not _SIGNS.fullmatch(text) or _REFUSED.search(text):
        return None
    if _COMMAND.search(text) or _depth(text) > MAX_DEPTH:
        return None
    # It would evaluate powers of e as it parses.
    text = re.sub(r"\\[a-zA-Z]+|e", lambda token: r"\Omega_{e}" if token[0] == "e" else token[0], text)
    if not _HAS_POWER_OF_FUNCTION.search(text):
        text = _PRODUCT.sub(r"\\cdot ", text)
    # It would warn once that nothing bounds its time; what bounds it stands above.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    _forget_tables()
    found = parse(f"\\boxed{{{text}}}", _AS_WRITTEN, parsing_timeout=0)
    return found[0] if found and isinstance(found[0], sympy.Basic) else None


def _forget_tables() -> None:
    """Empty the parser's tables when they are large: each new expression adds some 60 KB, and none are freed (antlr4
    4.9.3).
    """
    if len(PSParser.sharedContextCache.cache) > MAX_TABLE_ENTRIES:
        for tables in (PSParser.decisionsToDFA, PSLexer.decisionsToDFA):
            tables[:] = [DFA(table.atnStartState, decision) for decision, table in enumerate(tables)]
        PSParser.sharedContextCache.cache.clear()


def _depth(text: str) -> int:
    level = deepest = 0
    for character in text:
        level += (character in "([{") - (character in ")]}")
        deepest = max(deepest, level)
    return max(deepest, text.count("|") // 2)


def _value(node: sympy.Basic, point: int) -> Any:
    """The node's value, its size bounded at every step."""
    result = _of_node(node, point)
    if not _CTX.isfinite(result) or abs(_CTX.mag(result) if result else 0) > MAX_BITS:
        raise _Unknown
    return result


def _of_node(node: sympy.Basic, point: int) -> Any:
    if isinstance(node, sympy.Symbol):
        return _NAMED[node.name] if node.name in _NAMED else _at(node.name, point)
    if isinstance(node, sympy.Float):
        return from_fraction(Fraction(str(node)))
    if isinstance(node, sympy.Rational):
        return _CTX.mpf(int(node.p)) / int(node.q)
    if node in _CONSTANTS:
        return _CONSTANTS[node]
    name = type(node).__name__
    if name == "Pow":
        return _power(node, point)
    if name not in _FUNCTIONS:
        raise _Unknown
    arguments = [_value(argument, point) for argument in node.args]
    if name not in _OF_ANY_SIZE and any(abs(argument) > MAX_ARGUMENT for argument in arguments):
        raise _Unknown
    return _FUNCTIONS[name](*arguments)


def _power(node: sympy.Basic, point: int) -> Any:
    base, exponent = (_value(argument, point) for argument in node.args)
    if abs(exponent) * max(1, abs(_CTX.mag(base)) if base else 1) > MAX_BITS:
        raise _Unknown
    odd = node.args[1]
    # The real root, as a school would: \sqrt[3]{-8} is -2.
    if isinstance(odd, sympy.Rational) and odd.q % 2 == 1 and not _CTX.im(base) and _CTX.re(base) < 0:
        return (-1) ** int(odd.p) * (-base) ** exponent
    return base**exponent


def _factorial(number: Any) -> Any:
    if abs(number) > MAX_FACTORIAL:
        raise _Unknown
    return _CTX.factorial(number)


def _product(*factors: Any) -> Any:
    result = _CTX.mpf(1)
    for factor in factors:
        result *= factor
    return result


def _at(name: str, point: int) -> Any:
    """A number between 1/4 and 4, of either sign, that depends on the name and the point alone."""
    drawn = zlib.crc32(f"{point} {name}".encode())
    # All positive, all negative, and twice mixed: what holds for positive values alone is not equal.
    is_negative = point == 1 or (point >= 2 and (zlib.crc32(name.encode()) + point) % 2 == 1)
    return (-1 if is_negative else 1) * (_CTX.mpf(1) / 4 + _CTX.sqrt(drawn) / 17477)


_NAMED = {"i": _CTX.mpc(0, 1), "omega_e": +_CTX.e}
_CONSTANTS = {sympy.pi: +_CTX.pi, sympy.E: +_CTX.e, sympy.I: _CTX.mpc(0, 1)}
_OF_ANY_SIZE = {"Add", "Mul", "Abs", "floor", "ceiling", "log"}
_FUNCTIONS: dict[str, Any] = {
    "Add": lambda *terms: sum(terms),
    "Mul": _product,
    "Abs": abs,
    "factorial": _factorial,
    "floor": _CTX.floor,
    "ceiling": _CTX.ceil,
    "exp": _CTX.exp,
    "log": lambda value, base=_CTX.e: _CTX.log(value, base),
    "sin": _CTX.sin,
    "cos": _CTX.cos,
    "tan": _CTX.tan,
    "cot": _CTX.cot,
    "sec": _CTX.sec,
    "csc": _CTX.csc,
    "asin": _CTX.asin,
    "acos": _CTX.acos,
    "atan": _CTX.atan,
    "sinh": _CTX.sinh,
    "cosh": _CTX.cosh,
    "tanh": _CTX.tanh,
    "binomial": _CTX.binomial,
}
