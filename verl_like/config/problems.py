"""All problems of a command, reported together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from verl_like.config.options import options

_NAME = re.compile(r"[a-z_]+(?:\.[A-Za-z0-9_]+)+")


class Refused(ValueError):
    """Error of an invalid command. Each problem says what was found, what is expected and the remedy."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(listing(self.problems))


def listing(problems: Sequence[str]) -> str:
    """Return a single problem unchanged, several as a numbered list."""
    if len(problems) == 1:
        return problems[0]
    lines = [f"{number}. {problem}".replace("\n", "\n     ") for number, problem in enumerate(problems, start=1)]
    return "\n  ".join([f"{len(problems)} problems:", *lines])


def refuse(problems: Iterable[str]) -> None:
    """Raise if there are any problems.

    Raises:
        Refused: all of the problems.
    """
    found = tuple(problems)
    if found:
        raise Refused(found)


def without_echoes(earlier: Iterable[str], later: Iterable[str]) -> list[str]:
    """Return the ``later`` problems that mention no option of an ``earlier`` problem.

    An unreadable option has its default in later checks, so their findings about it are meaningless.
    """
    blamed = {name for problem in earlier for name in _NAME.findall(problem)} & options().keys()
    return [problem for problem in later if not blamed.intersection(_NAME.findall(problem))]
