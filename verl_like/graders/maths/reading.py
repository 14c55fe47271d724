r"""Reading the answer to a maths problem: LaTeX or plain text becomes values and groups of values.

Conventions, the same for truths and responses:

- A point is always decimal. A comma before exactly three digits, with no space behind it, separates thousands outside
  brackets: ``1,000`` is 1000, while ``1, 000`` and ``(1,000)`` are pairs, and ``3,5`` is a pair and never 3.5.
- A unit behind a value (``\text{cm}``, ``5 cm``, degrees, dollars) is set aside; so is ``x =`` or ``x \in`` in front of
  it.
- ``(a,b)`` is a point or an open interval, read alike; ``\{a,b\}`` is a set; ``a, b`` and ``a \text{ or } b`` are
  values in any order.
- ``3 < x \le 5`` is the interval (3,5]; ``a \pm b`` is two values; ``3\frac{1}{2}`` is three and a half.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from verl_like.graders.characters import plain
from verl_like.graders.maths.expression import FUNCTIONS
from verl_like.graders.maths.leaf import Leaf, Unreadable, leaf
from verl_like.graders.maths.units import squeezed
from verl_like.graders.maths.values import are_same, has_values

MAX_CHARS = 2000  # below the 4300 digits at which int() refuses
MAX_PARTS = 50
MAX_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Several values. ``kind`` is the pair of brackets, "" for a bare list, "union", "matrix", "row", or the signs of a
    chain such as a < b < c.
    """

    kind: str
    parts: tuple[Answer, ...]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An equation or inequality that is not solved for a name. ``sign`` is one of = < \\le \\ne."""

    sign: str
    left: Leaf
    right: Leaf


Answer = Leaf | Group | Relation

_SMALL = "alpha beta gamma delta zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega"
_CAPITAL = "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
_GREEK = dict(zip("αβγδζηθκλμνξρστφχψωΓΔΘΛΞΠΣΦΨΩ", [*_SMALL.split(), *_CAPITAL.split()], strict=True))
_CHARACTERS = str.maketrans(
    {
        "×": r"\cdot ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "÷": r"\div ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "√": r"\sqrt ",
        "∪": r"\cup ",
        "∈": r"\in ",
        "±": r"\pm ",
        "∅": r"\emptyset ",
        "½": r"\frac{1}{2}",
        "º": "°",
        "˚": "°",
        "∙": r"\cdot ",
        "∗": r"\cdot ",
        "⩽": r"\le ",
        "⩾": r"\ge ",
        "⟨": "(",
        "⟩": ")",
        "∣": "|",
        "ℝ": r"\mathbb{R}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        **{letter: f"\\{name} " for letter, name in _GREEK.items()},
        "µ": r"\mu ",
        "\n": " ",
        "\t": " ",
        "\r": " ",
    }
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")
_END = r"(?![a-zA-Z])"
_WRITTEN_OUT = (*sorted(FUNCTIONS, key=len, reverse=True), "pi", "theta", "infty", "emptyset")
_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (rf"\\(?:left|right)\s*\.|\\(?:textcolor|color)\s*\{{\w+\}}|\\(?:underline|rm|bf|it){_END}", ""),
        (rf"\\(?:l|c)?dots{_END}|…", r"\\ldots "),
        (r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}", r"\\binom{\1}{\2}"),
        (r"\.\\dot\s*\{?(\d)\}?(?!\d)", r".\\overline{\1}"),
        (rf"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle){_END}\s*", ""),
        (r",\s*\\!\s*", ","),
        (r"(?<!\\)\\!", ""),
        (r"\{,\}", ","),
        (rf"(?<!\\)\\(?:[,;: ]|q?quad{_END})|~", " "),
        (r"\{:\}", ":"),
        (r"\\mathbb\s*([A-Z])", r"\\mathbb{\1}"),
        (rf"\\[dtc]frac{_END}", r"\\frac"),
        (rf"\\[dt]binom{_END}", r"\\binom"),
        (r"\\(?:math(?:bf|bfit)|boldsymbol|bm)\s*\{\s*([a-zA-Z])\s*\}", r"\\mathbf{\1}"),
        (
            r"\\(?:text(?:bf|it|rm|sf|tt|normal|up)|math(?:rm|bf(?!\{[a-zA-Z]\})|it|sf|tt|normal)|[mh]box|boldsymbol|bm"
            r"|operatorname\*?|text)\s*\{",
            r"\\text{",
        ),
        (rf"\\text\{{\s*({'|'.join(_WRITTEN_OUT)})\s*\}}", r"\\\1 "),
        (rf"\\[lr]?[vV]ert{_END}", "|"),
        (rf"\\[id]math{_END}", lambda match: match[0][1]),
        (r"\\text\{\s*,?\s*(and|or)\s*\}", r" \1 "),
        (rf"\\lbrace{_END}", r"\\{"),
        (rf"\\rbrace{_END}", r"\\}"),
        (rf"\\langle{_END}", "("),
        (rf"\\rangle{_END}", ")"),
        (rf"\\leq(?:slant)?{_END}|<=", r"\\le "),
        (rf"\\geq(?:slant)?{_END}|>=", r"\\ge "),
        (rf"\\neq{_END}|!=", r"\\ne "),
        (rf"\\lt{_END}", "<"),
        (rf"\\gt{_END}", ">"),
        (rf"\\varnothing{_END}", r"\\emptyset"),
        (r"(?<!\\)\$", ""),
        (r"\\%|\\text\{\s*percent\s*\}|(?<=\d)\s*percent\b", "%"),
        (rf"\^\s*\{{?\s*\\circ\s*\}}?|\\degree{_END}|\^\s*\{{?°\}}?", "°"),
        (r"\*\*", "^"),
        (rf"\\(?:times|ast){_END}|\*", r"\\cdot "),
        (rf"(?<![\\a-zA-Z])({'|'.join(_WRITTEN_OUT[:-2])}){_END}", r"\\\1 "),
        (rf"(?<![\\a-zA-Z])(?:infty|infinity|oo){_END}", r"\\infty "),
        (r"(?<![a-zA-Z])\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<![\\a-zA-Z])sqrt\s*(?=[{\d])", r"\\sqrt"),
        (r"\\frac\s*(\d)\s*(?=[\d{])", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
        (r"\\(sqrt|frac)\s+(?=\{)", r"\\\1"),
        (r"\\sqrt\s*([\da-zA-Z])", r"\\sqrt{\1}"),
        (r"(\\log\s*_)\s*(\d)", r"\1{\2}"),
        (r"\^\s*(\d)(?=\d+\s*\^)", r"^{\1}"),  # TeX raises one digit; 2^10 is meant as 2^{10} all the same
        (r"([\^_])\s*(\d+|[a-zA-Z])", r"\1{\2}"),
        (r"([\^_])\s*\{\s*([\da-zA-Z]+)\s*\}", r"\1{\2}"),
        (r"\+\s*\\infty", r"\\infty"),
        (r"[\[(]\s*\\begin\{array\}\{[clr| ]*\}(.*?)\\end\{array\}\s*[\])]", r"\\begin{pmatrix}\1\\end{pmatrix}"),
    )
)
_VECTORS = re.compile(r"\\(?:vec|overrightarrow|mathbf|boldsymbol|bm)(?![a-zA-Z])")
_PLUS_MINUS = re.compile(rf"\\pm{_END}")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_OPEN, _CLOSE = {"(", "[", "{", r"\{", r"\begin"}, {")", "]", "}", r"\}", r"\end"}
_THOUSANDS = re.compile(r"(?<![\d.,])(?<!\d )[1-9]\d{0,2}([, ])\d{3}(?:\1\d{3})*(?! ?\d|,\d)")
# Where "and" and "or" do not separate values: within \text{}, and between words.
_IS_PROSE = re.compile(r"\\text\{[^{}]*\b(?:and|or)\b|^\s*[a-zA-Z]{2,}(?:[ -][a-zA-Z]+)*\s*$")
# A list, or a number with its unit, that is text as a whole.
_ALL_TEXT = re.compile(r"\\text\{([^{}]*,[^{}]*|\s*(?:\\\$)?-?\d[^{}]*)\}")
_SIGNS = {"=", "<", ">", r"\le", r"\ge", r"\ne"}
_NAME = re.compile(
    r"(?:\\?[a-zA-Z]+(?: [a-zA-Z]+)*|\\frac\{d[a-z]?\}\{d[a-z]\}|\\angle "
    r"?[A-Z]+)'*(?:_(?:\w|\{\w+\}))?(?:(?:\^\{-1\})?\([^()=<>]{1,12}\))?"
)
_NAMES = re.compile(r"\(\\?[a-zA-Z]+(?:_\{\w+\})?(?:,\\?[a-zA-Z]+(?:_\{\w+\})?)+\)")  # as in (x,y) = (3,4)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_VARIABLE = re.compile(r"\\?[a-zA-Z]+")
_COORDINATES = ([r"\rho", r"\theta", r"\phi"], [r"\rho", r"\theta"], [r"\rho", r"\phi", r"\theta"])
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_CONTAINED = re.compile(rf"({_NAME.pattern})\s*\\in{_END}\s*(.+)")
_ALL_REALS = re.compile(r"(?:\\text\{)?\s*(?:all )?real numbers\s*\}?", re.IGNORECASE)
_BUILDER = re.compile(rf"\\\{{\s*[a-zA-Z]\s*(?:\\mid{_END}|\||:)(.+)\\\}}")
_MATRIX = re.compile(r"\\begin\{([pb]?)matrix\}(.*)\\end\{\1matrix\}")


def read(text: str) -> Answer:
    """What the text says.

    Raises:
        Unreadable: for text that is empty, longer than ``MAX_CHARS``, of characters that are no text, of unbalanced
            brackets, nested too deeply or of too many parts.
    """
    if len(text) > MAX_CHARS:
        raise Unreadable(f"it has {len(text)} characters, more than {MAX_CHARS}")
    text = _uniform(text)
    if not text.isprintable():
        raise Unreadable("it has control characters or halves of surrogate pairs")
    if not _IS_PROSE.search(text):
        has_inequality = any(sign in text for sign in ("<", ">", r"\le ", r"\ge "))
        text = re.sub(
            r"(?:\s|,)\s*or\s", r" \\cup " if has_inequality else ", ", re.sub(r"(?:\s|,)\s*and\s", ", ", text)
        )
    return _answer(text, 0)


def normalized(text: str) -> str:
    """The text in uniform spelling and without what means nothing: answers of the same text are the same."""
    return _ended(squeezed(_uniform(text[:MAX_CHARS])))


def _uniform(text: str) -> str:
    # Wide signs and odd spaces become plain ones; what NFKC would spoil (x² as x2) is translated before.
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+", lambda match: f"_{{{match[0].translate(_LOWERED)}}}", text)
    text = unicodedata.normalize("NFKC", plain(text).translate(_CHARACTERS)).strip()
    if text.startswith((r"\(", r"\[")) and text.endswith((r"\)", r"\]")):
        text = text[2:-2]
    if _VECTORS.search(text):
        text = re.sub(r"\\times(?![a-zA-Z])", r"\\crossed", text)  # a product that is not evaluated
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    return text.strip()


def _ended(text: str) -> str:
    """The text without the sentence's full stop or comma; three dots are something else."""
    return text if text.endswith("..") else text.rstrip(".,;:")


def _answer(text: str, depth: int) -> Answer:
    text = _ended(text.strip()).strip()
    if not text:
        raise Unreadable("it is empty")
    if depth > MAX_DEPTH:
        raise Unreadable(f"it is nested deeper than {MAX_DEPTH}")
    if match := _ALL_TEXT.fullmatch(text):
        text = match[1]
    if not any(bracket in text for bracket in ("(", "[", r"\{")):
        text = _THOUSANDS.sub(lambda match: match[0].replace(",", "").replace(" ", ""), text)
    if len(parts := split(text, {r"\cup"})[0]) > 1:
        return Group(kind="union", parts=_parts(parts, depth))
    if len(parts := split(text, {";"})[0]) > 1 and any(len(split(part, {","})[0]) > 1 for part in parts):
        return Group(kind="", parts=_parts([f"({part})" for part in parts if part.strip()], depth))
    if len(parts := split(text, {",", ";"})[0]) > 1:
        return Group(kind="", parts=_parts(parts, depth))
    text = _exact_side(text).strip()
    if not text:
        raise Unreadable("it is empty")
    sides, signs = split(text, _SIGNS)
    if signs:
        return _related([side.strip() for side in sides], signs, depth)
    if match := _CONTAINED.fullmatch(text):
        return _named(_answer(match[2], depth + 1), squeezed(match[1]))
    if text.strip() == r"\mathbb{R}" or _ALL_REALS.fullmatch(text.strip()):
        return Group(kind="()", parts=(Leaf(text=r"-\infty", is_words=True), Leaf(text=r"\infty", is_words=True)))
    if match := _MATRIX.fullmatch(text):
        rows = [row for row in split(match[2], {r"\\"})[0] if row.strip()]
        return Group(kind="matrix", parts=tuple(_row(split(row, {"&"})[0], depth) for row in rows))
    if text[0] in "([{" or text.startswith(r"\{"):
        grouped = _grouped(text, depth)
        if grouped is not None:
            return grouped
    if len(around := _PLUS_MINUS.split(text)) == 2:
        return Group(kind="", parts=_parts(["+".join(around).lstrip("+ "), "-".join(around)], depth))
    return leaf(text)


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """The pieces between separators outside all brackets, and those separators.

    Raises:
        Unreadable: where brackets are unbalanced; the ( and ] of an interval are a pair.
    """
    pieces: list[list[str]] = [[]]
    found, level = [], 0
    for token in _TOKEN.findall(text):
        level += (token in _OPEN) - (token in _CLOSE)
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


def _parts(texts: Sequence[str], depth: int) -> tuple[Answer, ...]:
    """The parts' answers; those of a bare list within the list one by one."""
    if len(texts) > MAX_PARTS:
        raise Unreadable(f"it has {len(texts)} parts, more than {MAX_PARTS}")
    answers: list[Answer] = []
    for text in texts:
        answer = _answer(text, depth + 1)
        answers += answer.parts if isinstance(answer, Group) and not answer.kind else [answer]
    return tuple(answers)


def _is_constant(only: Leaf) -> bool:
    return only.number is not None or not (only.is_words or re.search("[a-zA-Z]", _COMMAND.sub("", only.text)))


def _row(cells: Sequence[str], depth: int) -> Group:
    parts = _parts(cells, depth)
    if len(parts) != len(cells):
        raise Unreadable("a cell of its matrix holds a list")
    return Group(kind="row", parts=parts)


def _grouped(text: str, depth: int) -> Answer | None:
    """What stands in brackets; None where the first bracket closes before the end, as in (x+1)(x-1)."""
    if match := _BUILDER.fullmatch(text):
        return _answer(match[1], depth + 1)
    tokens = _TOKEN.findall(text)
    level = 0
    for i, token in enumerate(tokens):
        level += (token in _OPEN) - (token in _CLOSE)
        if level == 0:
            if i < len(tokens) - 1:
                return None
            break
    kind = (tokens[0] + tokens[-1]).replace("\\", "")
    inner = "".join(tokens[1:-1])
    if kind == "{}" and not inner.strip():
        return Leaf(text=r"\emptyset", is_words=True)
    parts = split(inner, {",", ";"})[0]
    if len(parts) == 1 and kind == "()":
        return _answer(inner, depth + 1)
    if len(parts) == 1 and kind == "{}" and depth == 0:  # {5} for 5, but a set of sets is no set
        only = _answer(inner, depth + 1)
        return only if isinstance(only, Leaf) and _is_constant(only) else Group(kind=kind, parts=(only,))
    return Group(kind=kind, parts=_parts(parts, depth))


def _exact_side(text: str) -> str:
    """What stands before an approximation; the approximation itself where that is nothing, or a name."""
    pieces = split(text, {r"\approx"})[0]
    if len(pieces) == 1:
        return text
    if not pieces[0].strip():
        return pieces[1]
    return f"{pieces[0]}={pieces[1]}" if _name(pieces[0]) else pieces[0]


def _related(sides: list[str], signs: list[str], depth: int) -> Answer:
    """``x = 5`` as 5 with a name, ``1 < x`` as an interval, anything else as a relation."""
    names = [_name(side) for side in sides]
    if set(signs) == {"="}:
        constants = [
            side
            for side, name in zip(sides, names, strict=True)
            if not name and not re.search("[a-zA-Z]", _COMMAND.sub("", side))
        ]
        known = [side for side in constants if has_values(side)]
        if any(not are_same(side, known[0]) for side in known):
            raise Unreadable("it says that different numbers are equal")
        others = [name for name in names[1:] if _VARIABLE.fullmatch(name)]
        if names[0] and not others:
            return _named(_answer(sides[-1], depth + 1), names[0])
        if len(sides) == 2 and names[1]:
            return _named(_answer(sides[0], depth + 1), names[1])
        if len(sides) == 2 and names[0]:  # y = x
            return Relation(sign="=", left=leaf(sides[0]), right=leaf(sides[1]))
        if len(constants) == len(sides):
            return _answer(sides[-1], depth + 1)
    elif r"\ne" not in signs and "=" not in signs:
        interval = _interval(sides, signs, names, depth)
        if interval is not None:
            return interval
    if len(sides) > 2:
        if all(sign in (">", r"\ge") for sign in signs):
            sides, signs = sides[::-1], [_FLIPPED[sign] for sign in reversed(signs)]
        return Group(kind=" ".join(signs), parts=tuple(_answer(side, depth + 1) for side in sides))
    if signs[0] in (">", r"\ge"):
        sides, signs = sides[::-1], [_FLIPPED[signs[0]]]
    return Relation(sign=signs[0], left=leaf(sides[0]), right=leaf(sides[1]))


def _interval(sides: list[str], signs: list[str], names: list[str], depth: int) -> Group | None:
    """The interval that an inequality solved for a name describes; None for any other."""
    if len(sides) == 2 and not any(names):  # -x > b
        opposite = [_name(side[1:]) if side.startswith("-") else "" for side in sides]
        if bool(opposite[0]) != bool(opposite[1]):
            sides = [name or f"-({side})" for name, side in zip(opposite, sides, strict=True)]
            signs, names = [_FLIPPED[signs[0]]], opposite
    if len(sides) == 2 and bool(names[0]) != bool(names[1]):
        if names[1]:
            sides, signs, names = sides[::-1], [_FLIPPED[signs[0]]], names[::-1]
        bound, is_open = _answer(sides[1], depth + 1), signs[0] in ("<", ">")
        if signs[0] in ("<", r"\le"):
            return Group(
                kind="()" if is_open else "(]", parts=(Leaf(text=r"-\infty", is_words=True), bound), name=names[0]
            )
        return Group(kind="()" if is_open else "[)", parts=(bound, Leaf(text=r"\infty", is_words=True)), name=names[0])
    if len(sides) == 3 and names[1] and not names[0] and not names[2]:
        if all(sign in (">", r"\ge") for sign in signs):
            sides, signs = sides[::-1], [_FLIPPED[sign] for sign in reversed(signs)]
        if all(sign in ("<", r"\le") for sign in signs):
            kind = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
            return Group(kind=kind, parts=(_answer(sides[0], depth + 1), _answer(sides[2], depth + 1)), name=names[1])
    return None


def _name(text: str) -> str:
    """The text where it names something, as x, f(x) and Area do; else ""."""
    name = squeezed(re.sub(r"\\text\{([^{}]*)\}", r"\1", text))
    is_point = _NAMES.fullmatch(name) is not None and _in_order(name[1:-1].split(","))
    return name if name not in (r"\infty", r"\pi") and (_NAME.fullmatch(name) or is_point) else ""


def _in_order(names: list[str]) -> bool:
    """Whether the names of coordinates stand as everybody writes them, so that they may be left out."""
    return names == sorted(names, key=lambda name: name.lstrip("\\")) or names in _COORDINATES


def _named(answer: Answer, name: str) -> Answer:
    return answer if isinstance(answer, Relation) else replace(answer, name=name)
