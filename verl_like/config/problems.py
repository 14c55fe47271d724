"""All that is wrong with a command, reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from verl_like.config.options import options

_NAME = re.compile(r"[a-z_]+(?:\.[A-Za-z0-9_]+)+")


class Refused(ValueError):
    """A command that cannot work: what was found, what would work and the remedy, of each of its problems."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(listing(self.problems))


def listing(problems: Sequence[str]) -> str:
    """A problem as it is; several as a numbered list."""
    if len(problems) == 1:
        return problems[0]
    lines = [f"{number}. {problem}".replace("\n", "\n     ") for number, problem in enumerate(problems, start=1)]
    return "\n  ".join([f"{len(problems)} problems:", *lines])


def refuse(problems: Iterable[str]) -> None:
    """Raise where there are any.

    Raises:
        Refused: with all of them.
    """
    found = tuple(problems)
    if found:
        raise Refused(found)


def without_echoes(earlier: Iterable[str], later: Iterable[str]) -> list[str]:
    """Those of the ``later`` problems that speak of no option which an ``earlier`` one complains of.

    An option that could not be read has its default in the checks that follow, so what they find about it is no news.
    """
    blamed = {name for problem in earlier for name in _NAME.findall(problem)} & options().keys()
    return [problem for problem in later if not blamed.intersection(_NAME.findall(problem))]
