"""Integer arithmetic, as in bash."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from verl_like_migrate.shell.unknown import UNKNOWN, UnknownError

_TOKEN = re.compile(
    r"\s*([0-9]+#[\w@]+|0[xX][0-9a-fA-F]+|[0-9]+|[A-Za-z_]\w*(?:\[[^]]*\])?"
    r"|<<=|>>=|\*\*|\+\+|--|<<|>>|&&|\|\||[-+*/%&|^<>=!]=|[-+*/%<>&|^~!?:=(),])"
)
_ASSIGNING = re.compile(r"(\*|/|%|\+|-|<<|>>|&|\||\^)?=")
_Number = Callable[[], int]


def whole_number(text: str) -> int | None:
    """Return the integer that a text of ASCII digits represents; None for other texts, and beyond 64 bits."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _quotient(left: int, right: int) -> int:
    """Divide and round towards zero, as in C."""
    if right == 0:
        raise UnknownError("a division by zero")
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _power(left: int, right: int) -> int:
    if not 0 <= right < 64:
        raise UnknownError(f"a power of {right}")
    return int(left**right)


# From lowest to highest precedence.
_OPERATIONS: list[dict[str, Callable[[_Number, _Number], int]]] = [
    {"||": lambda a, b: int(bool(a() or b()))},
    {"&&": lambda a, b: int(bool(a() and b()))},
    {"|": lambda a, b: a() | b()},
    {"^": lambda a, b: a() ^ b()},
    {"&": lambda a, b: a() & b()},
    {"==": lambda a, b: int(a() == b()), "!=": lambda a, b: int(a() != b())},
    {
        "<": lambda a, b: int(a() < b()),
        ">": lambda a, b: int(a() > b()),
        "<=": lambda a, b: int(a() <= b()),
        ">=": lambda a, b: int(a() >= b()),
    },
    {"<<": lambda a, b: a() << (b() & 63), ">>": lambda a, b: a() >> (b() & 63)},
    {"+": lambda a, b: a() + b(), "-": lambda a, b: a() - b()},
    {
        "*": lambda a, b: a() * b(),
        "/": lambda a, b: _quotient(a(), b()),
        "%": lambda a, b: (x := a()) - (y := b()) * _quotient(x, y),
    },
    {"**": lambda a, b: _power(a(), b())},
]
_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "!": lambda a: int(not a),
    "~": operator.invert,
}
_BINARY = {sign: operation for level in _OPERATIONS for sign, operation in level.items()}


class Arithmetic:
    """An expression between ``((`` and ``))``. Variables are read and written by name; their values are expressions."""

    def __init__(self, text: str, read: Callable[[str], str], write: Callable[[str, str], None]) -> None:
        self._read = read
        self._write = write
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise UnknownError(f"{text.strip()} is not an integer expression")
            self._tokens.append(match[1])
            at = match.end()
        self._tokens.reverse()

    def value(self) -> int:
        """Return the value of the expression.

        Raises:
            UnknownError: it depends on an unknown value, or is not a valid expression.
        """
        result = self._list()() if self._tokens else 0
        if self._tokens:
            raise UnknownError(f"{self._tokens[-1]} is not an operator")
        return result

    def _next(self, *signs: str) -> str:
        """Take the next sign if it is one of these."""
        return self._tokens.pop() if self._tokens and self._tokens[-1] in signs else ""

    def _must(self, sign: str) -> None:
        if not self._next(sign):
            raise UnknownError(f"{sign} is missing")

    def _list(self) -> _Number:
        parts = [self._choice()]
        while self._next(","):
            parts.append(self._choice())
        return lambda: [part() for part in parts][-1]

    def _choice(self) -> _Number:
        condition = self._binary(0)
        if not self._next("?"):
            return condition
        yes = self._choice()
        self._must(":")
        no = self._choice()
        return lambda: yes() if condition() else no()

    def _binary(self, level: int) -> _Number:
        if level == len(_OPERATIONS):
            return self._unary()
        left = self._binary(level + 1)
        while sign := self._next(*_OPERATIONS[level]):
            # Powers associate to the right: 2**3**2 is 2**9.
            right = self._binary(level if sign == "**" else level + 1)
            left = (lambda a, b, operation: lambda: _wrapped(operation(a, b)))(left, right, _BINARY[sign])
        return left

    def _unary(self) -> _Number:
        if sign := self._next("-", "+", "!", "~"):
            operand = self._unary()
            return (lambda change: lambda: _wrapped(change(operand())))(_UNARY[sign])
        if sign := self._next("++", "--"):
            name = self._tokens.pop() if self._tokens else ""
            return lambda: self._set(name, self._of(name) + (1 if sign == "++" else -1))
        if self._next("("):
            inner = self._list()
            self._must(")")
            return inner
        token = self._tokens.pop() if self._tokens else ""
        if not re.match(r"\w", token):
            raise UnknownError("a number is missing")
        return (lambda: _constant(token)) if token[0].isdigit() else self._named(token)

    def _named(self, name: str) -> _Number:
        if sign := self._next("++", "--"):
            step = 1 if sign == "++" else -1
            return lambda: _wrapped(self._set(name, self._of(name) + step) - step)
        match = _ASSIGNING.fullmatch(self._tokens[-1]) if self._tokens else None
        if match is None:
            return lambda: self._of(name)
        self._tokens.pop()
        right, operation = self._choice(), _BINARY[match[1]] if match[1] else None
        return lambda: self._set(name, operation(lambda: self._of(name), right) if operation else right())

    def _of(self, name: str) -> int:
        text = self._read(name)
        if UNKNOWN in text:
            raise UnknownError(f"the value of {name} is unknown")
        if re.fullmatch(r"-?(0|[1-9][0-9]*)", text) and (number := whole_number(text)) is not None:
            return number
        return Arithmetic(text, self._read, self._write).value()

    def _set(self, name: str, value: int) -> int:
        value = _wrapped(value)
        self._write(name, str(value))
        return value


def _wrapped(value: int) -> int:
    """Wrap a number to 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def _constant(token: str) -> int:
    base, _, digits = token.rpartition("#")
    try:
        if base:
            return _wrapped(int(digits, int(base)))
        is_octal = token.startswith("0") and token.isdigit()
        return _wrapped(int(token, 8 if is_octal else 0))
    except ValueError:
        raise UnknownError(f"{token} is not a number") from None
