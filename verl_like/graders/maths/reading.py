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
from collections.abc import Sequence
from dataclasses import dataclass, replace

from verl_like.graders.maths.leaf import Leaf, Unreadable, leaf, squeezed

MAX_CHARS = 2000  # below the 4300 digits at which int() refuses
MAX_PARTS = 50
MAX_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Several values. ``kind`` is the pair of brackets, "" for a bare list, or "union", "matrix", "row"."""

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

_CHARACTERS = str.maketrans(
    {
        "−": "-",
        "–": "-",
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
        "θ": r"\theta ",
        "½": r"\frac{1}{2}",
        "º": "°",
        "\u200b": "",
        "\n": " ",
        "\t": " ",
        "\r": " ",
        **{digit: f"^{i} " for i, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        **{digit: f"_{i} " for i, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    }
)
_END = r"(?![a-zA-Z])"
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (rf"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle){_END}\s*", ""),
        (r",\s*\\!\s*", ","),
        (r"(?<!\\)\\!", ""),
        (r"\{,\}", ","),
        (rf"(?<!\\)\\(?:[,;: ]|q?quad{_END})|~", " "),
        (rf"\\[dtc]frac{_END}", r"\\frac"),
        (rf"\\[dt]binom{_END}", r"\\binom"),
        (r"\\(?:text(?:bf|it|rm|sf|tt|normal)|math(?:rm|bf|it|sf)|mbox|boldsymbol|bm|text)\s*\{", r"\\text{"),
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
        (rf"(?<![\\a-zA-Z])((?:arc)?(?:sin|cos|tan)|log|ln|pi){_END}", r"\\\1 "),
        (rf"(?<![\\a-zA-Z])(?:infty|infinity|oo){_END}", r"\\infty "),
        (r"(?<![a-zA-Z])\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<![\\a-zA-Z])sqrt\s*(?=[{\d])", r"\\sqrt"),
        (r"\\frac\s*(\d)\s*(?=[\d{])", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
        (r"\\(sqrt|frac)\s+(?=\{)", r"\\\1"),
        (r"\\sqrt\s*([\da-zA-Z])", r"\\sqrt{\1}"),
        (r"([\^_])\s*\{\s*([\da-zA-Z])\s*\}", r"\1\2 "),
        (r"\+\s*\\infty", r"\\infty"),
        (r"[\[(]\s*\\begin\{array\}\{[clr| ]*\}(.*?)\\end\{array\}\s*[\])]", r"\\begin{pmatrix}\1\\end{pmatrix}"),
    )
)
_PLUS_MINUS = re.compile(rf"\\pm{_END}")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_OPEN, _CLOSE = {"(", "[", "{", r"\{", r"\begin"}, {")", "]", "}", r"\}", r"\end"}
_THOUSANDS = re.compile(r"(?<![\d.,])(?<!\d )\d{1,3}([, ])\d{3}(?:\1\d{3})*(?! ?\d|,\d)")
# Where "and" and "or" do not separate values: within \text{}, and between words.
_IS_PROSE = re.compile(r"\\text\{[^{}]*\b(?:and|or)\b|^\s*[a-zA-Z]{2,}(?:[ -][a-zA-Z]+)*\s*$")
# A list, or a number with its unit, that is text as a whole.
_ALL_TEXT = re.compile(r"\\text\{([^{}]*,[^{}]*|\s*-?\d[^{}]*)\}")
_SIGNS = {"=", "<", ">", r"\le", r"\ge", r"\ne"}
_NAME = re.compile(
    r"(?:\\?[a-zA-Z]+(?: [a-zA-Z]+)*|\\frac\{d[a-z]?\}\{d[a-z]\}|\\angle "
    r"?[A-Z]+)'*(?:_(?:\w|\{\w+\}))?(?:\([a-zA-Z](?:,[a-zA-Z])*\))?"
)
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_CONTAINED = re.compile(rf"({_NAME.pattern})\s*\\in{_END}\s*(.+)")
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
    # Wide signs and odd spaces become plain ones; what NFKC would spoil (x² as x2) is translated before.
    text = unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).strip()
    if not text.isprintable():
        raise Unreadable("it has control characters or halves of surrogate pairs")
    if text.startswith((r"\(", r"\[")) and text.endswith((r"\)", r"\]")):
        text = text[2:-2]
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    if not _IS_PROSE.search(text):
        has_inequality = any(sign in text for sign in ("<", ">", r"\le ", r"\ge "))
        text = re.sub(
            r"(?:\s|,)\s*or\s", r" \\cup " if has_inequality else ", ", re.sub(r"(?:\s|,)\s*and\s", ", ", text)
        )
    return _answer(text, 0)


def _answer(text: str, depth: int) -> Answer:
    text = text.strip().rstrip(".,;:").strip()
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
    if len(parts := split(text, {",", ";"})[0]) > 1:
        return Group(kind="", parts=_parts(parts, depth))
    text = _exact_side(text)
    sides, signs = split(text, _SIGNS)
    if signs:
        return _related([side.strip() for side in sides], signs, depth)
    if match := _CONTAINED.fullmatch(text):
        return _named(_answer(match[2], depth + 1), squeezed(match[1]))
    if match := _MATRIX.fullmatch(text):
        rows = [row for row in split(match[2], {r"\\"})[0] if row.strip()]
        return Group(
            kind="matrix", parts=tuple(Group(kind="row", parts=_parts(split(row, {"&"})[0], depth)) for row in rows)
        )
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
    if len(parts) == 1 and kind in ("()", "{}"):
        return _answer(inner, depth + 1)
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
        if names[0]:
            return _named(_answer(sides[-1], depth + 1), names[0])
        if len(sides) == 2 and names[1]:
            return _named(_answer(sides[0], depth + 1), names[1])
        if not any(re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", side)) for side in sides):
            return _answer(sides[-1], depth + 1)
    elif r"\ne" not in signs and "=" not in signs:
        interval = _interval(sides, signs, names, depth)
        if interval is not None:
            return interval
    if len(sides) > 2:
        raise Unreadable("it is a chain of relations that is neither a solution nor an interval")
    if signs[0] in (">", r"\ge"):
        sides, signs = sides[::-1], [_FLIPPED[signs[0]]]
    return Relation(sign=signs[0], left=leaf(sides[0]), right=leaf(sides[1]))


def _interval(sides: list[str], signs: list[str], names: list[str], depth: int) -> Group | None:
    """The interval that an inequality solved for a name describes; None for any other."""
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
    return name if _NAME.fullmatch(name) else ""


def _named(answer: Answer, name: str) -> Answer:
    return answer if isinstance(answer, Relation) else replace(answer, name=name)
