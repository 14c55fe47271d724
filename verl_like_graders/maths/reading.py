r"""Read the answer to a maths problem: turn LaTeX or plain text into values and groups of values.

The same conventions hold for ground truths and responses:

- A point is always a decimal point. Outside brackets, a comma before exactly three digits, with no space after it,
  separates thousands: ``1,000`` is 1000. ``1, 000`` and ``(1,000)`` are pairs, and so is ``3,5``, which is never 3.5.
- A unit after a value (``\text{cm}``, ``5 cm``, degrees, dollars) is separated from it, and so is ``x =``,
  ``P(X=2) =`` or ``x \in`` before it. A word that is neither a unit nor a countable noun changes the value.
- ``(a,b)`` is a point or an open interval, both read alike; ``\{a,b\}`` is a set. ``a, b`` and ``a \text{ or } b`` are
  values in any order, and so are values between arrows, wide spaces, line breaks and logical connectives.
- ``x = a = b`` is b if a equals b, and otherwise not an answer. ``x<1 \lor x>2`` is a union, ``x>1 \land x<2`` an
  intersection.
- ``3 < x \le 5`` is the interval (3,5]; ``a \pm b`` is two values; ``3\frac{1}{2}`` is three and a half.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from verl_like_graders.maths.answers import Answer, Group, Relation
from verl_like_graders.maths.chains import LETTERS, check_chain, exact_side
from verl_like_graders.maths.leaf import Leaf, Unreadable, leaf
from verl_like_graders.maths.names import NAME, is_variable, name_of
from verl_like_graders.maths.spelling import MAX_CHARS, ended, uniform
from verl_like_graders.maths.splitting import CLOSE, OPEN, TOKEN, filled, split, with_modulus
from verl_like_graders.maths.units import squeezed
from verl_like_graders.maths.values import are_same, has_values

MAX_PARTS = 50
MAX_DEPTH = 6

_END = r"(?![a-zA-Z])"
_PLUS_MINUS = re.compile(rf"\\pm{_END}")
_THOUSANDS = re.compile(r"(?<![\d.,])(?<!\d )[1-9]\d{0,2}([, ])\d{3}(?:\1\d{3})*(?! ?\d|,\d)")
# Text in which "and" and "or" do not separate values: within \text{}, and between words.
_IS_PROSE = re.compile(r"\\text\{[^{}]*\b(?:and|or)\b|^\s*[a-zA-Z]{2,}(?:[ -][a-zA-Z]+)*\s*$")
# A list, or a number with its unit, that is entirely within \text{}.
_ALL_TEXT = re.compile(r"\\text\{([^{}]*,[^{}]*|\s*(?:\\\$)?-?\d[^{}]*)\}")
_SIGNS = {"=", "<", ">", r"\le", r"\ge", r"\ne"}
_RELATED = r"(?:=|<|>|\\(?:[lg]e|ne|in|approx|equiv)(?![a-zA-Z]))"
_BEGINS_RELATED, _ENDS_RELATED = re.compile(rf"\s*{_RELATED}"), re.compile(rf"{_RELATED}\s*\Z")
_SAYS_SOMETHING = re.compile(r"\d|[=<>(\[]|\\(?:[lg]e|ne|in|\{|pi|sqrt)(?![a-zA-Z])")
# Colons of a time or between names, which do not form a ratio of numbers.
_IS_NO_RATIO = re.compile(r"\d{1,2}(?::[0-5]\d){1,2}(?: ?[AaPp]\.? ?[Mm]\.?)?|.*[a-zA-Z]:.*|.*:[a-zA-Z].*")
_LABELLED = re.compile(r"(?:\\text\{\s*\(([A-J])\)[.:]?\s*\})[\s.:]*(\S.*)")
_LINES = re.compile(
    r"\\begin\{(cases|dcases|rcases|aligned|align|alignedat|gathered|split|array|eqnarray)\}(?:\{[^{}]*\})?(.*)"
    r"\\end\{\1\}"
)
_IF = re.compile(r"\s*(?:\\text\{\s*,?\s*(?:if|for|when|where|as)?\s*\}|\b(?:if|for|when)\b)\s*")
_MINUS_SET = re.compile(r"(?<=\})\s*-\s*(?=\\\{)")  # \mathbb{R}-\{0\}
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_CONTAINED = re.compile(rf"({NAME})\s*\\in{_END}\s*(.+)")
_ALL_REALS = re.compile(r"(?:\\text\{)?\s*(?:all )?real numbers\s*\}?", re.IGNORECASE)
_BUILDER = re.compile(rf"\\\{{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{{R\}}\s*)?(?:\\mid{_END}|\||:)(.+)\\\}}")
_MATRIX = re.compile(r"\\begin\{([pb]?)matrix\}(.*)\\end\{\1matrix\}")
_ALL = Group(kind="()", parts=(Leaf(text=r"-\infty", is_words=True), Leaf(text=r"\infty", is_words=True)))


def read(text: str) -> Answer:
    """Read the text as an answer.

    Raises:
        Unreadable: the text is empty or longer than ``MAX_CHARS``, contains characters that are not printable, has
            unbalanced brackets, is nested too deeply or has too many parts.
    """
    if len(text) > MAX_CHARS:
        raise Unreadable(f"it has {len(text)} characters, more than {MAX_CHARS}")
    text = uniform(text)
    if not text.isprintable():
        raise Unreadable("it has control characters or halves of surrogate pairs")
    if not _IS_PROSE.search(text):
        text = re.sub(r"(?:(?<=\s)|,)\s*or(?=[\s(])", r" \\lor ", text)
        text = re.sub(r"(?:(?<=\s)|,)\s*and(?=[\s(])", r" \\land ", text)
    if label := _LABELLED.fullmatch(text):
        return Group(kind="choice", parts=(Leaf(text=label[1]), _answer(label[2], 1)))
    return _answer(text, 0)


def _answer(text: str, depth: int) -> Answer:
    text = ended(text.strip()).strip()
    if not text:
        raise Unreadable("it is empty")
    if depth > MAX_DEPTH:
        raise Unreadable(f"it is nested deeper than {MAX_DEPTH}")
    if match := _ALL_TEXT.fullmatch(text):
        text = match[1]
    if not any(bracket in text for bracket in ("(", "[", r"\{")):
        text = _THOUSANDS.sub(lambda match: match[0].replace(",", "").replace(" ", ""), text)
    if (several := _several(text, depth)) is not None:
        return several
    text = exact_side(text).strip()
    if not text:
        raise Unreadable("it is empty")
    sides, signs = split(text, _SIGNS)
    if signs:
        return _related([side.strip() for side in sides], signs, depth)
    if match := _CONTAINED.fullmatch(text):
        return _named(_answer(match[2], depth + 1), squeezed(match[1]))
    if text.strip() == r"\mathbb{R}" or _ALL_REALS.fullmatch(text.strip()):
        return _ALL
    if len(parts := split(text, {r"\setminus"})[0]) == 2 or len(parts := _MINUS_SET.split(text)) == 2:
        return Group(kind="minus", parts=tuple(_answer(part, depth + 1) for part in parts))
    if (table := _table(text, depth)) is not None:
        return table
    if text[0] in "([{" or text.startswith(r"\{"):
        grouped = _grouped(text, depth)
        if grouped is not None:
            return grouped
    if len(around := _PLUS_MINUS.split(text)) == 2:
        return Group(kind="", parts=_parts(["+".join(around).lstrip("+ "), "-".join(around)], depth))
    parts = split(text, {":"})[0]
    if len(parts) > 1 and not _IS_NO_RATIO.fullmatch(squeezed(text)) and all(has_values(part) for part in parts):
        return Group(kind="ratio", parts=tuple(leaf(part) for part in parts))
    return leaf(text)


def _several(text: str, depth: int) -> Answer | None:
    """Read several answers, whatever separates them; return None if the text is one answer.

    "or" joins sets to their union and "and" to their intersection. Other answers form a list.
    """
    if len(parts := split(text, {r"\cup"})[0]) > 1:
        return Group(kind="union", parts=_parts(parts, depth))
    for sign, kind in ((r"\lor", "union"), (r"\land", "meet")):
        if len(parts := filled(text, {sign})) > 1:
            if not _SAYS_SOMETHING.search(text):
                return None  # p \land q is a formula of logic
            answers = _alternatives(parts, depth)
            return Group(kind=kind if any(map(_is_set, answers)) else "", parts=answers)
    if len(parts := filled(text, {r"\Rightarrow"})) > 1:
        return Group(kind="" if "=" in text else "arrow", parts=_alternatives(parts, depth))
    if len(parts := filled(text, {r"\quad", r"\\"})) > 1:
        return Group(kind="", parts=_alternatives(parts, depth))
    if len(parts := split(text, {";"})[0]) > 1 and any(len(split(part, {","})[0]) > 1 for part in parts):
        grouped = [part if "=" in part else f"({part})" for part in parts if part.strip()]
        return Group(kind="", parts=_alternatives(grouped, depth))
    if len(parts := split(text, {",", ";"})[0]) > 1:
        return Group(kind="", parts=_parts(with_modulus(parts), depth))
    return None


def _alternatives(texts: Sequence[str], depth: int) -> tuple[Answer, ...]:
    """Return the parts' answers; ``x = 7, y = 11`` is one answer, the point with these coordinates."""
    answers: list[Answer] = []
    for text in with_modulus(texts):
        found = _parts([text], depth)
        names = [part.name for part in found if not isinstance(part, Relation)]
        if len(found) == len(set(names)) > 1 and all(names):
            found = (
                Group(
                    kind="()",
                    parts=tuple(part for _, part in sorted(zip(names, found, strict=True), key=itemgetter(0))),
                ),
            )
        answers += found
    if len(answers) > MAX_PARTS:
        raise Unreadable(f"it has {len(answers)} parts, more than {MAX_PARTS}")
    return tuple(answers)


def _is_set(answer: Answer) -> bool:
    """Return whether the answer is a set of numbers as described by an inequality."""
    if isinstance(answer, Relation):
        return answer.sign != "="
    is_interval = isinstance(answer, Group) and is_variable(answer.name)
    return is_interval or (isinstance(answer, Group) and answer.kind in ("union", "meet", "minus"))


def _table(text: str, depth: int) -> Answer | None:
    """Read a matrix, a system of equations or a piecewise function; return None for anything else."""
    if match := _MATRIX.fullmatch(text):
        rows = [row for row in split(match[2], {r"\\"})[0] if row.strip()]
        return Group(kind="matrix", parts=tuple(_row(split(row, {"&"})[0], depth) for row in rows))
    if not (match := _LINES.fullmatch(text)):
        return None
    lines = [split(line, {"&"})[0] for line in filled(match[2], {r"\\"})]
    if match[1] in ("cases", "dcases", "array") and any(map(_has_condition, lines)):
        return Group(kind="cases", parts=tuple(_piece(line, depth) for line in lines))
    return _answer(", ".join("".join(line).strip().rstrip(".,;") for line in lines), depth + 1)


def _has_condition(line: list[str]) -> bool:
    if len(line) != 2:
        return False
    return not _BEGINS_RELATED.match(line[1]) and not _ENDS_RELATED.search(line[0])


def _piece(line: list[str], depth: int) -> Group:
    if len(line) != 2:
        raise Unreadable("a line of its cases has no condition")
    condition = _IF.sub("", line[1])
    return Group(kind="piece", parts=(_answer(line[0], depth + 1), _answer(condition, depth + 1)))


def _parts(texts: Sequence[str], depth: int) -> tuple[Answer, ...]:
    """Return the parts' answers, with bare lists within the list flattened."""
    if len(texts) > MAX_PARTS:
        raise Unreadable(f"it has {len(texts)} parts, more than {MAX_PARTS}")
    answers: list[Answer] = []
    for text in texts:
        answer = _answer(text, depth + 1)
        answers += answer.parts if isinstance(answer, Group) and not answer.kind else [answer]
    return tuple(answers)


def _is_constant(only: Leaf) -> bool:
    return only.number is not None or not (only.is_words or LETTERS.search(only.text))


def _row(cells: Sequence[str], depth: int) -> Group:
    parts = _parts(cells, depth)
    if len(parts) != len(cells):
        raise Unreadable("a cell of its matrix holds a list")
    return Group(kind="row", parts=parts)


def _grouped(text: str, depth: int) -> Answer | None:
    """Read the contents of brackets; return None if the first bracket closes before the end, as in (x+1)(x-1)."""
    if match := _BUILDER.fullmatch(text):
        return _answer(match[1], depth + 1)
    tokens = TOKEN.findall(text)
    level = 0
    for i, token in enumerate(tokens):
        level += (token in OPEN) - (token in CLOSE)
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
    if len(parts) == 1 and kind == "{}" and depth == 0:  # {5} means 5, but {5} within a set is a set
        only = _answer(inner, depth + 1)
        if isinstance(only, Group) and not only.kind:
            return Group(kind=kind, parts=only.parts)
        return only if isinstance(only, Leaf) and _is_constant(only) else Group(kind=kind, parts=(only,))
    return Group(kind=kind, parts=_parts(parts, depth))


def _related(sides: list[str], signs: list[str], depth: int) -> Answer:
    """Read ``x = 5`` as 5 with a name, ``1 < x`` as an interval, anything else as a relation."""
    names = [name_of(side) for side in sides]
    if set(signs) == {"="}:
        constants = [side for side, name in zip(sides, names, strict=True) if not name and not LETTERS.search(side)]
        known = [side for side in constants if has_values(side)]
        if any(not are_same(side, known[0]) for side in known):
            raise Unreadable("it equates different numbers")
        if names[0] and not any(map(is_variable, names[1:])):
            check_chain(sides, names)
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
    """Return the interval that an inequality solved for a name describes, or None for any other inequality."""
    if len(sides) == 2 and not any(names):  # -x > b
        opposite = [name_of(side[1:]) if side.startswith("-") else "" for side in sides]
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


def _named(answer: Answer, name: str) -> Answer:
    return answer if isinstance(answer, Relation) else replace(answer, name=name)
