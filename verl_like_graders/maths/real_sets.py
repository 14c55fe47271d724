r"""Compare sets of real numbers written in different ways: ``(-\infty,1)\cup(1,\infty)``, ``x\ne 1``,
``\mathbb{R}\setminus\{1\}``.

All end points of the two sets are sorted. They cut the line into cells: the points, and the open intervals between
them. Two sets are equal if they contain the same cells.
"""

from __future__ import annotations

from functools import cmp_to_key

from verl_like_graders.maths.answers import Answer, Group, Relation
from verl_like_graders.maths.arithmetic import Value, are_close, is_less
from verl_like_graders.maths.leaf import Leaf
from verl_like_graders.maths.names import is_variable
from verl_like_graders.maths.values import real_value

_INTERVALS = ("()", "(]", "[)", "[]")
_COMBINED = ("union", "meet", "minus")


class _NotReal(Exception):
    """Raised if an answer is not a set of real numbers, or its end points are unknown."""


def is_combined(answer: Answer) -> bool:
    """Return whether the answer combines sets or excludes numbers, so that it can be written in several ways."""
    if isinstance(answer, Relation):
        return answer.sign == r"\ne" and is_variable(answer.left.text)
    if not isinstance(answer, Group):
        return False
    return answer.kind in _COMBINED or (answer.kind == "" and all(map(is_combined, answer.parts)))


def are_same_sets(a: Answer, b: Answer) -> bool | None:
    """Return whether two answers are the same set of real numbers, or None if one is not such a set."""
    names_a, names_b = _names(a), _names(b)
    if len(names_a) > 1 or len(names_b) > 1:
        return None
    try:
        ends = _sorted(_ends(a) + _ends(b))
        return _cells(a, ends) == _cells(b, ends) and (not names_a or not names_b or names_a == names_b)
    except _NotReal:
        return None


def _names(answer: Answer) -> set[str]:
    if isinstance(answer, Relation):
        return {answer.left.text}
    found = {answer.name} - {""}
    return found.union(*map(_names, answer.parts)) if isinstance(answer, Group) else found


def _ends(answer: Answer) -> list[Value]:
    if isinstance(answer, Group):
        return [end for part in answer.parts for end in _ends(part)]
    if isinstance(answer, Relation):
        return _ends(answer.right)
    return [] if answer.is_words else [_number(answer)]


def _number(leaf: Leaf) -> Value:
    found = (
        None if leaf.is_words or leaf.unit.name else real_value(leaf.number if leaf.number is not None else leaf.text)
    )
    if found is None:
        raise _NotReal
    return found


def _sorted(ends: list[Value]) -> list[Value]:
    found: list[Value] = []
    for end in sorted(ends, key=cmp_to_key(lambda a, b: -1 if is_less(a, b) else int(is_less(b, a)))):
        if not found or not are_close(found[-1], end):
            found.append(end)
    return found


def _cells(answer: Answer, ends: list[Value]) -> frozenset[int]:
    """Return the indices of the answer's cells: 2i + 1 is the i-th end point, 2i the interval before it."""
    everything = frozenset(range(2 * len(ends) + 1))
    if isinstance(answer, Relation):
        if answer.sign != r"\ne" or not is_variable(answer.left.text):
            raise _NotReal
        return everything - {_cell(answer.right, ends)}
    if isinstance(answer, Leaf):
        return frozenset() if answer.text == r"\emptyset" else frozenset([_cell(answer, ends)])
    if answer.kind in _INTERVALS and len(answer.parts) == 2:
        return _interval(answer, ends)
    parts = [_cells(part, ends) for part in answer.parts]
    if answer.kind == "meet" or (is_combined(answer) and not answer.kind):
        return everything.intersection(*parts)
    if answer.kind == "minus":
        return parts[0].difference(*parts[1:])
    if answer.kind in ("union", "{}", ""):
        return frozenset().union(*parts)
    raise _NotReal


def _interval(answer: Group, ends: list[Value]) -> frozenset[int]:
    low, high = answer.parts
    if not isinstance(low, Leaf) or not isinstance(high, Leaf):
        raise _NotReal
    first = -1 if low.text == r"-\infty" else _cell(low, ends)
    last = 2 * len(ends) + 1 if high.text == r"\infty" else _cell(high, ends)
    if first >= last:
        raise _NotReal
    inner = set(range(first + 1, last))
    if answer.kind[0] == "[" and first >= 0:
        inner.add(first)
    if answer.kind[1] == "]" and last <= 2 * len(ends):
        inner.add(last)
    return frozenset(inner)


def _cell(leaf: Leaf, ends: list[Value]) -> int:
    number = _number(leaf)
    return next(2 * i + 1 for i, end in enumerate(ends) if are_close(end, number))
