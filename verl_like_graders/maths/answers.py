"""The types of a parsed answer: one value, several values, or a relation."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like_graders.maths.leaf import Leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Several values.

    ``kind`` is the pair of brackets, "" for a bare list, "union", "meet" (the intersection of sets), "minus", "matrix",
    "row", "ratio", "choice" (a letter with its answer), "cases" and their "piece", "arrow", or the signs of a chain
    such as a < b < c.
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
