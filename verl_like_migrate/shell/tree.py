"""The forms of command in a bash script."""

from __future__ import annotations

from typing import NamedTuple

from verl_like_migrate.shell.lexer import Word


class Simple(NamedTuple):
    """A simple command, and its input by ``<<`` and ``<<<``."""

    words: list[Word]
    line: int
    given: list[Word]


class Calculation(NamedTuple):
    """The inside of ``((...))``."""

    text: str
    line: int


class Condition(NamedTuple):
    """The words of ``[[ ... ]]``."""

    words: list[Word]
    line: int


class Pipeline(NamedTuple):
    """Commands joined by ``|``, and their source for messages."""

    parts: list[Node]
    is_negated: bool
    source: str
    line: int


class Chain(NamedTuple):
    """Pipelines, each with the sign before it: ``&&``, ``||``, and none for the first."""

    links: list[tuple[str, Pipeline]]


class Enclosed(NamedTuple):
    """``{ ... }`` and ``( ... )``; the latter is a subshell, whose assignments are local."""

    body: list[Chain]
    is_subshell: bool


class Branching(NamedTuple):
    """``if``: a list of conditions and bodies, and the body of ``else``."""

    branches: list[tuple[list[Chain], list[Chain]]]
    otherwise: list[Chain]


class Loop(NamedTuple):
    """``while`` a condition holds: the body, then the step of a ``for ((start; condition; step))``."""

    condition: list[Chain]
    body: list[Chain]
    step: list[Chain]
    line: int


class ForEach(NamedTuple):
    """``for`` over words."""

    name: str
    words: list[Word]
    body: list[Chain]


class Case(NamedTuple):
    """``case``."""

    subject: Word
    clauses: list[Clause]


class Clause(NamedTuple):
    """Patterns of a ``case``, the body, and the sign that ends it."""

    patterns: list[Word]
    body: list[Chain]
    end: str


class Function(NamedTuple):
    """The definition of a function."""

    name: str
    body: Node


Node = Simple | Calculation | Condition | Enclosed | Branching | Loop | ForEach | Case | Function
