"""Parse an expression in LaTeX or plain text into a tree, in time linear in its length.

Conventions: adjacent factors are multiplied, and ``/`` and ``\\div`` apply to the one factor that follows. Letters are
case-sensitive variables. ``e`` is Euler's number, and ``i`` the imaginary unit unless the expression also has a ``j``.
Before brackets ``f``, ``g`` and ``h`` are functions, most other letters are factors. A whole number before a proper
fraction of numbers is a mixed number. Degrees are allowed only within the argument of a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from verl_like_graders.maths.leaf import Unreadable

MAX_CHARS = 600
MAX_DEPTH = 25  # of brackets within brackets


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the tree. ``kind`` is "number", "symbol" or the name of the operation on ``parts``."""

    kind: str
    parts: tuple[Node, ...] = ()
    number: Fraction = Fraction(0)
    name: str = ""


_TOKEN = re.compile(r"\d+(?:\.\d*)?|\.\d+|\\[a-zA-Z]+|\\.|\S", re.DOTALL)
_SMALL = "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau"
_OTHER = "phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar"
_LETTERS = frozenset([*_SMALL.split(), *_OTHER.split()])
_ANGLES = frozenset(["sin", "cos", "tan", "cot", "sec", "csc"])
_INVERSES = frozenset(f"arc{name}" for name in _ANGLES)
_HYPERBOLIC = frozenset(["sinh", "cosh", "tanh", "coth"])
FUNCTIONS = _ANGLES | _INVERSES | _HYPERBOLIC | {"log", "ln", "lg", "exp"}
_CLOSING = {"(": ")", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
# Letters that are functions before brackets. Any other letter is one only before a bracketed number, else a factor.
_APPLIED = frozenset(
    ["f", "g", "h", *(f"\\{name}" for name in ["phi", "varphi", "sigma", "tau", "zeta", "Gamma", "mu"])]
)
_BARE = re.compile(r"[\d.]+|[a-zA-Z]")
_MARKED = frozenset([r"\mathbf", r"\vec", r"\hat", r"\overline", r"\bar", r"\tilde", r"\mathcal", r"\overrightarrow"])
# 1ABC_{16} is not a product; 2a_{12} is the product of 2 and a term of a sequence.
_DIGITS_OF_A_BASE = re.compile(r"\d(?:[\dA-F]*[A-F]|[\da-f]*[a-f][\da-f]*[a-f])_\{?1[1-6]\}?(?!\d)")
ONE, MINUS_ONE = Node("number", number=Fraction(1)), Node("number", number=Fraction(-1))


def parse(text: str) -> Node:
    """Parse an expression into a tree.

    Raises:
        Unreadable: the text is not an expression, is ambiguous, or is too long or nested too deeply.
    """
    if len(text) > MAX_CHARS:
        raise Unreadable(f"an expression of it has {len(text)} characters, more than {MAX_CHARS}")
    if _DIGITS_OF_A_BASE.search(text):
        raise Unreadable("a number in a base is part of an expression")
    parser = _Parser(_TOKEN.findall(text))
    found = parser.sum()
    if parser.next:
        raise Unreadable(f"{parser.next!r} is not expected there")
    return found


class _Parser:
    """A recursive-descent parser. Each method reads what its name says and leaves the next token in ``next``."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._position = tokens, 0
        self._depth = self._angles = 0
        self._open_bars = [0]  # number of open absolute values in each pair of brackets
        self._has_unit_vectors = "j" in tokens

    @property
    def next(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self.next
        self._position += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise Unreadable(f"a {token!r} is missing")

    def sum(self) -> Node:
        terms = [self._signed(self._product)]
        while self.next in ("+", "-"):
            is_negative = self._take() == "-"
            term = self._signed(self._product)
            terms.append(_negative(term) if is_negative else term)
        return terms[0] if len(terms) == 1 else Node("sum", tuple(terms))

    def _signed(self, read: Callable[[], Node]) -> Node:
        is_negative = False
        while self.next in ("+", "-"):
            is_negative ^= self._take() == "-"
        found = read()
        return _negative(found) if is_negative else found

    def _product(self) -> Node:
        result = self._mixed()
        while True:
            if self.next in (r"\cdot", r"\div", "/"):
                kind = "product" if self._take() == r"\cdot" else "quotient"
                result = Node(kind, (result, self._signed(self._power)))
            elif self._begins_factor():
                if self.next[0] in "0123456789." and re.match(r"[\da-zA-Z.]", self._tokens[self._position - 1]):
                    # x2 may mean a power or an index.
                    raise Unreadable("a number follows a letter or a number")
                result = Node("product", (result, self._power()))
            else:
                return result

    def _mixed(self) -> Node:
        """Read the first factor, which may be a mixed number."""
        whole, position = self.next, self._position
        found = self._power()
        if self._position > position + 1 or not whole.isdigit() or self.next != r"\frac":
            return found
        fraction = self._command()
        over, under = fraction.parts
        if over.kind == under.kind == "number" and 0 < over.number < under.number and self.next not in ("^", "!"):
            return Node("sum", (found, fraction))
        return Node("product", (found, self._raised(fraction)))

    def _begins_factor(self) -> bool:
        token = self.next
        if token == "|":
            return not self._open_bars[-1]
        if token.startswith("\\"):
            return token in _CLOSING or token[1:] not in ("cdot", "div", "rfloor", "rceil")
        return bool(token) and (token[0].isalnum() or token[0] == "." or token in _CLOSING)

    def _power(self) -> Node:
        return self._raised(self._atom())

    def _raised(self, base: Node) -> Node:
        """Read what follows the base: factorials, degrees, an exponent."""
        while self.next in ("!", "°"):
            if self._take() == "°":
                if not self._angles:
                    raise Unreadable("degrees are part of an expression")
                base = Node("degrees", (base,))
            elif self.next == "!":
                self._take()
                base = Node("double factorial", (base,))
            else:
                base = Node("factorial", (base,))
        if self.next == "^":
            self._take()
            base = Node("power", (base, self._argument(signed=True)))
            if self.next in ("^", "!"):
                raise Unreadable("it is not clear what an exponent belongs to")
        return base

    def _argument(self, *, signed: bool = False) -> Node:
        """Read the contents of braces. Without braces, read one digit, letter or command; if ``signed``, a whole
        number.
        """
        if self.next == "{":
            return self._bracketed()
        if signed and self.next == "-":
            self._take()
            return _negative(self._argument(signed=True))
        token = self.next
        if token.isdigit() and not signed:
            self._tokens[self._position] = token[1:]
            if len(token) == 1:
                self._take()
            return Node("number", number=Fraction(token[0]))
        return self._atom()

    def _bracketed(self) -> Node:
        opening = self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable(f"it is nested deeper than {MAX_DEPTH}")
        self._open_bars.append(0)
        found = self.sum()
        self._open_bars.pop()
        self._depth -= 1
        self._expect(_CLOSING[opening])
        return Node(opening[2:], (found,)) if opening.startswith("\\") else found

    def _absolute(self) -> Node:
        self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable(f"it is nested deeper than {MAX_DEPTH}")
        self._open_bars[-1] += 1
        found = self.sum()
        self._open_bars[-1] -= 1
        self._depth -= 1
        self._expect("|")
        return Node("absolute", (found,))

    def _atom(self) -> Node:
        token = self.next
        if token in _CLOSING:
            return self._bracketed()
        if token == "|":
            return self._absolute()
        if token.startswith("\\") and len(token) > 1:
            return self._command()
        if not token or not (token[0].isascii() and (token[0].isalnum() or token[0] == ".")):
            raise Unreadable(f"{token!r} is not expected there" if token else "it ends too early")
        self._take()
        if token[0].isalpha():
            return self._letter(token)
        if self.next == "_":
            raise Unreadable("a number has an index")
        if "." in token and self.next == r"\overline":
            return self._repeating(token)
        return Node("number", number=Fraction(token.removesuffix(".")))

    def _repeating(self, digits: str) -> Node:
        self._take()
        self._expect("{")
        cycle = self._take()
        self._expect("}")
        if not cycle.isdigit():
            raise Unreadable("a line has no digits under it")
        decimals = len(digits.partition(".")[2])
        number = Fraction(digits.removesuffix(".")) + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**decimals)
        return Node("number", number=number)

    def _letter(self, name: str) -> Node:
        name += self._index()
        if name == "e":
            return Node("e")
        if name == "i" and not self._has_unit_vectors:
            return Node("i")
        if self._is_applied(name):
            return Node("application", (self._bracketed(),), name=name)
        if self.next == "'":
            raise Unreadable("derivatives are not evaluated")
        return Node("symbol", name=name)

    def _is_applied(self, name: str) -> bool:
        if self.next != "(":
            return False
        inner = self._tokens[self._position + 1 : self._position + 3]
        is_bare = len(inner) == 2 and inner[1] == ")" and _BARE.fullmatch(inner[0]) is not None
        return name in _APPLIED or (is_bare and (name[0].isupper() or not inner[0].isalpha()))

    def _index(self) -> str:
        """Read the index after a letter, as text."""
        if self.next != "_":
            return ""
        self._take()
        if self.next != "{":
            return f"_{self._take()}"
        level, found = 0, []
        while self.next:
            token = self._take()
            level += {"{": 1, "}": -1}.get(token, 0)
            found.append(token)
            if not level:
                return f"_{''.join(found[1:-1])}"
        raise Unreadable("an index is not closed")

    def _command(self) -> Node:
        token = self._take()
        name = token[1:]
        if name == "frac":
            over = self._argument()
            return Node("quotient", (over, self._argument()))
        if name == "sqrt":
            if self.next == "[":
                self._take()
                degree = self.sum()
                self._expect("]")
                return Node("power", (self._argument(), Node("quotient", (ONE, degree))))
            return Node("root", (self._argument(),))
        if name == "binom":
            over = self._argument()
            return Node("binomial", (over, self._argument()))
        if name == "pi":
            return Node("pi")
        if name in FUNCTIONS:
            return self._function(name)
        if name in _LETTERS:
            symbol = token + self._index()
            if self._is_applied(symbol):
                return Node("application", (self._bracketed(),), name=symbol)
            return Node("symbol", name=symbol)
        if name == "text" or token in _MARKED:
            return self._marked(token)
        raise Unreadable(f"{token} is not evaluated")

    def _marked(self, mark: str) -> Node:
        r"""Read a letter in another font: \text{i} is i, but \mathbf{i} is a vector and \overline{AB} a name."""
        self._expect("{")
        inner: list[str] = []
        while self.next not in ("}", "") and len(inner) < 3:
            inner.append(self._take())
        self._expect("}")
        name = "".join(inner)
        if not name.isalpha() and name.lstrip("\\") not in _LETTERS:
            raise Unreadable(f"{mark} contains no letter")
        if mark == r"\text":
            if len(name) > 1:
                raise Unreadable("it has words within an expression")
            return self._letter(name)
        if mark == r"\mathbf" or (mark in (r"\vec", r"\hat") and name in ("i", "j", "k")):
            return Node("symbol", name=name + self._index())
        return Node("symbol", name=f"{mark}{{{name}}}{self._index()}")

    def _function(self, name: str) -> Node:
        base = None
        if self.next == "_":
            if name != "log":
                raise Unreadable(f"\\{name} has an index")
            self._take()
            base = self._argument()
        exponent = None
        if self.next == "^":
            self._take()
            exponent = self._argument(signed=True)
        if exponent == MINUS_ONE:
            if name not in _ANGLES:
                raise Unreadable(f"\\{name}^{{-1}} may be an inverse or a quotient")
            name, exponent = f"arc{name}", None
        self._angles += 1
        argument = self._of_function()
        self._angles -= 1
        found = Node(name, (argument,) if base is None else (argument, base))
        return found if exponent is None else Node("power", (found, exponent))

    def _of_function(self) -> Node:
        r"""Read the argument of a function: the contents of brackets, or else adjacent factors, as in \sin 2x."""
        if self.next in ("(", "{"):
            return self._bracketed()
        found = self._mixed() if self.next.isdigit() else self._power()
        while self._begins_factor() and self.next[1:] not in FUNCTIONS and self.next not in ("(", "|"):
            if self.next[0] in "0123456789.":
                raise Unreadable("it is not clear where the argument of a function ends")
            found = Node("product", (found, self._power()))
        if self.next in ("/", r"\div"):
            raise Unreadable("it is not clear where the argument of a function ends")
        return found


def _negative(node: Node) -> Node:
    return Node("number", number=-node.number) if node.kind == "number" else Node("product", (MINUS_ONE, node))
