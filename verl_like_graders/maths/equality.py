"""Compare two maths answers in bounded time: numbers exactly, words as text, expressions by their values."""

from __future__ import annotations

import re

from verl_like_graders.maths.answers import Answer, Group, Relation
from verl_like_graders.maths.arithmetic import less
from verl_like_graders.maths.bases import TEN
from verl_like_graders.maths.chains import LETTERS
from verl_like_graders.maths.leaf import Leaf
from verl_like_graders.maths.names import is_sum
from verl_like_graders.maths.real_sets import are_same_sets, is_combined
from verl_like_graders.maths.units import Unit
from verl_like_graders.maths.values import Term, are_multiples, are_same, has_values, values_of

# Arithmetic between numbers that has not been carried out.
_UNDONE = re.compile(r"(?:[\d)}!]|\\pi)(?:[-+]|\\cdot|\\div|\()|\d\^\{[^{}]*\}\d")
_CLOCK = re.compile(r"\d{1,2}(?::\d{2})+")


def equal(ground_truth: Answer, answer: Answer) -> bool:
    """Return whether the answer equals the ground truth.

    This is not symmetric: one of them may name a unit or a variable that the other omits.
    """
    if ground_truth == answer:
        return True
    if _is(ground_truth, "choice") or _is(answer, "choice"):
        return _same_choices(ground_truth, answer)
    if is_combined(ground_truth) or is_combined(answer):
        same = are_same_sets(ground_truth, answer)
        if same is not None:
            return same
    if isinstance(ground_truth, Leaf) and not ground_truth.name and isinstance(answer, Relation):
        value = _value_of_sum(answer)
        return value is not None and _same_leaves(ground_truth, value)
    if isinstance(ground_truth, Relation) or isinstance(answer, Relation):
        return _same_relation(ground_truth, answer)
    if ground_truth.name and answer.name and ground_truth.name != answer.name:
        return _same_relation(ground_truth, answer)
    if _is(ground_truth, "ratio") or _is(answer, "ratio"):
        return _same_ratios(ground_truth, answer)
    if isinstance(ground_truth, Group) and isinstance(answer, Group):
        return _same_groups(ground_truth, answer)
    return isinstance(ground_truth, Leaf) and isinstance(answer, Leaf) and _same_leaves(ground_truth, answer)


def _is(answer: Answer, kind: str) -> bool:
    return isinstance(answer, Group) and answer.kind == kind


def _same_choices(ground_truth: Answer, answer: Answer) -> bool:
    """Compare answers of which one is a letter with its value, as in (C) 12.

    If each has a letter and a value, both must match. Otherwise only the common part is compared.
    """
    letter, value = answer.parts if isinstance(answer, Group) and answer.kind == "choice" else (answer, answer)
    if isinstance(ground_truth, Group) and ground_truth.kind == "choice":
        if letter is not value:
            return all(map(equal, ground_truth.parts, (letter, value)))
        return any(equal(part, answer) for part in ground_truth.parts)
    is_letter = isinstance(ground_truth, Leaf) and re.fullmatch("[A-J]", ground_truth.text) is not None
    return equal(ground_truth, letter if is_letter else value)


def _same_ratios(ground_truth: Answer, answer: Answer) -> bool:
    """Return whether the ratios are proportional; a ratio of two numbers also equals their quotient."""
    a, b = _terms(ground_truth), _terms(answer)
    a = [*a, "1"] if len(a) == 1 and len(b) == 2 else a
    b = [*b, "1"] if len(b) == 1 and len(a) == 2 else b
    if len(a) != len(b) or len(a) < 2:
        return False
    return all(are_same(f"({a[0]})({v})", f"({b[0]})({u})") for u, v in zip(a[1:], b[1:], strict=True))


def _terms(answer: Answer) -> list[str]:
    if isinstance(answer, Group):
        return [part.text for part in answer.parts if isinstance(part, Leaf)] if answer.kind == "ratio" else []
    if isinstance(answer, Leaf) and not answer.unit.name:
        # 15:30 may be a time, but not if the ground truth is a ratio such as 1:2.
        return answer.text.split(":") if _CLOCK.fullmatch(answer.text) else [] if answer.is_words else [answer.text]
    return []


def why_text(ground_truth: Answer) -> str:
    """Return why the ground truth, or a part of it, can only be compared as text, or "" if it has values."""
    parts = ground_truth.parts if isinstance(ground_truth, Group) else ()
    if isinstance(ground_truth, Relation):
        parts = (ground_truth.left, ground_truth.right)
    if isinstance(ground_truth, Leaf) and ground_truth.has_formula:
        return f"{ground_truth.text!r} has words within a formula"
    if (
        isinstance(ground_truth, Leaf)
        and ground_truth.number is None
        and not ground_truth.is_words
        and not has_values(ground_truth.text)
    ):
        return f"{ground_truth.text!r} is an expression that cannot be evaluated"
    return next(filter(None, map(why_text, parts)), "")


def vote(answer: Answer) -> str:
    """Return a text that equal answers share as far as possible: 1/2 for 0.5, a set's elements sorted."""
    if isinstance(answer, Relation):
        return f"{answer.left.text}{answer.sign}{answer.right.text}"
    if isinstance(answer, Leaf):
        return f"{answer.text}%" if answer.unit.name == "%" else answer.text
    if answer.kind == "choice":
        return vote(answer.parts[1])
    parts = [vote(part) for part in answer.parts]
    if answer.kind in ("", "{}", "union"):
        return ("∪" if answer.kind == "union" else ",").join(sorted(parts))
    brackets = answer.kind if len(answer.kind) == 2 else "[]"
    return f"{brackets[0]}{','.join(parts)}{brackets[1]}"


def _same_leaves(ground_truth: Leaf, answer: Leaf) -> bool:
    """Compare words as text, numbers exactly and expressions by their values; convert units of one kind."""
    if answer.unit.name.startswith("base ") and not _may_have_base(ground_truth.unit, answer.unit):
        return False
    if ground_truth.unit.name and answer.unit.name and ground_truth.unit.name != answer.unit.name:
        return _same_angles(ground_truth, answer)
    if ground_truth.is_words or answer.is_words:
        return ground_truth.is_words and answer.is_words and ground_truth.text == answer.text
    if ground_truth.unit.scale != answer.unit.scale and ground_truth.unit.name == answer.unit.name:
        return are_same(_in_base_units(ground_truth), _in_base_units(answer))
    if ground_truth.number is not None and answer.number is not None:
        return ground_truth.number == answer.number or _same_percents(ground_truth, answer)
    if ground_truth.text == answer.text:
        return True
    # "123 \cdot 456" restates the problem whose answer is 56088.
    if ground_truth.number is not None and _UNDONE.search(answer.text):
        return False
    return are_same(_term(ground_truth), _term(answer)) or _same_angles(ground_truth, answer)


def _may_have_base(ground_truth: Unit, answer: Unit) -> bool:
    """Return whether the bases match: the same base, or base ten if the ground truth names none."""
    return ground_truth == answer or (not ground_truth.name and answer.name == TEN)


def _in_base_units(leaf: Leaf) -> Term:
    scale = leaf.unit.scale
    if leaf.number is not None:
        return leaf.number * scale
    return f"\\frac{{{scale.numerator}}}{{{scale.denominator}}}({leaf.text})"


def _same_angles(ground_truth: Leaf, answer: Leaf) -> bool:
    r"""Compare an angle in degrees with one in radians: \frac{\pi}{2} equals 90 degrees.

    An angle without a unit is in radians if it contains a pi.
    """
    if ground_truth.unit.name == "degree":
        degrees, radians = ground_truth, answer
    elif answer.unit.name == "degree":
        degrees, radians = answer, ground_truth
    else:
        return False
    if radians.unit.name not in ("", "rad") or r"\pi" not in radians.text or radians.is_words or degrees.is_words:
        return False
    return are_same(f"({_in_base_units(degrees)})\\cdot\\pi/180", radians.text)


def _same_percents(ground_truth: Leaf, answer: Leaf) -> bool:
    """Accept 50 for 50%, because the question asks for percent, and 50% for 50, but not 0.5% for 0.5."""
    assert ground_truth.number is not None and answer.number is not None, "only numbers are compared as percents"
    if ground_truth.unit.name == "%" and not answer.unit.name:
        return ground_truth.number == answer.number / 100
    is_percent = answer.unit.name == "%" and not ground_truth.unit.name
    return is_percent and ground_truth.number == answer.number * 100 and abs(ground_truth.number) > 1


def _same_groups(ground_truth: Group, answer: Group) -> bool:
    if {ground_truth.kind, answer.kind} in ({""}, {"", "()"}) and _has_names(answer) and not _has_names(ground_truth):
        return _in_order_of_names(ground_truth, answer)
    if {ground_truth.kind, answer.kind} <= {"", "{}"}:
        if "{}" in (ground_truth.kind, answer.kind) and len(answer.parts) <= 2 * len(ground_truth.parts):
            return _all_in(ground_truth.parts, answer.parts) and _all_in(answer.parts, ground_truth.parts)
        return _names_decide(ground_truth, answer) and _rearranged(ground_truth, answer)
    if ground_truth.kind != answer.kind or len(ground_truth.parts) != len(answer.parts):
        return False
    if ground_truth.kind in ("union", "meet", "cases"):
        return _rearranged(ground_truth, answer)
    return all(equal(a, b) for a, b in zip(ground_truth.parts, answer.parts, strict=True))


def _has_names(group: Group) -> bool:
    """Return whether the parts are values of different names: x = 3, y = 4."""
    names = [part.name for part in group.parts if not isinstance(part, Relation)]
    return len(names) == len(group.parts) and all(names) and len(set(names)) == len(names) > 1


def _in_order_of_names(ground_truth: Group, answer: Group) -> bool:
    """Return whether the ground truth, which has no names, lists the answer's values sorted by name."""
    parts = sorted(answer.parts, key=lambda part: "" if isinstance(part, Relation) else part.name)
    return len(parts) == len(ground_truth.parts) and all(map(equal, ground_truth.parts, parts))


def _all_in(parts: tuple[Answer, ...], others: tuple[Answer, ...]) -> bool:
    return all(any(equal(part, other) for other in others) for part in parts)


def _rearranged(ground_truth: Group, answer: Group) -> bool:
    """Return whether the parts are equal in some order, each as often."""
    if len(ground_truth.parts) != len(answer.parts):
        return False
    left = list(answer.parts)
    for part in ground_truth.parts:
        found = next((i for i, other in enumerate(left) if equal(part, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _names_decide(ground_truth: Group, answer: Group) -> bool:
    """Return whether the answer names its values if several names matter: 2, 1 does not answer x = 1, y = 2."""
    names = {part.name for part in ground_truth.parts if not isinstance(part, Relation)}
    return len(names - {""}) < 2 or all(isinstance(part, Relation) or part.name for part in answer.parts)


def _same_relation(ground_truth: Answer, answer: Answer) -> bool:
    """Return whether one relation is a multiple of the other: y = 2x + 1 and 2x - y + 1 = 0."""
    a, b = _as_relation(ground_truth), _as_relation(answer)
    if a is None or b is None or a.sign != b.sign:
        return False
    sides = (a.left, a.right, b.left, b.right)
    if any(side.is_words for side in sides) or (found := values_of(*map(_term, sides))) is None:
        return False
    f, g = map(less, found[0], found[1]), map(less, found[2], found[3])
    both = [(u, v) for u, v in zip(f, g, strict=True) if u is not None and v is not None]
    if len(both) < 2 or not any(u and v for u, v in both):
        return False
    (first_f, first_g), *_ = both
    if all(u == first_f for u, _ in both) and all(v == first_g for _, v in both):
        return False  # 1 < 2 is a different statement from 1 < 3
    return are_multiples(both, positive=a.sign not in ("=", r"\ne"))


def _value_of_sum(answer: Relation) -> Leaf | None:
    """Return 17 for m + n = 17 (the question asks for m + n), or None for an equation of any other form."""
    is_value = answer.sign == "=" and is_sum(answer.left.text) and not LETTERS.search(answer.right.text)
    return answer.right if is_value else None


def _as_relation(answer: Answer) -> Relation | None:
    if isinstance(answer, Leaf) and answer.name:
        return Relation(sign="=", left=Leaf(text=answer.name), right=answer)
    return answer if isinstance(answer, Relation) else None


def _term(leaf: Leaf) -> Term:
    return leaf.number if leaf.number is not None else leaf.text
