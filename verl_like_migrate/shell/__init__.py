"""Read launch scripts as bash reads them, without running anything.

What only a running shell would know stays in the words as it is written, and a note says so: what most commands print,
which files there are. A command that would run is taken to succeed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_like_migrate.shell.budget import Budget, Spent
from verl_like_migrate.shell.run import Walk, substituted
from verl_like_migrate.shell.state import State
from verl_like_migrate.shell.syntax import parse
from verl_like_migrate.shell.unknown import UNKNOWN

_LONGEST_SCRIPT = 200_000


@dataclass(frozen=True, slots=True)
class Script:
    """Lists the commands that a script would run.

    ``commands`` are the words of every simple command that is reached, in order, builtins such as ``export`` included;
    calls of functions are replaced by what these run, and assignments in front of a command are none of its words.
    ``inside`` are those of each ``$(...)`` that only running it would tell.
    ``variables`` are those that are set at the end, by the environment or the script; arrays are not among them.
    ``notes`` are sentences with lines on what could not be known.
    """

    commands: list[list[str]]
    inside: list[list[str]]
    variables: dict[str, str]
    notes: list[str]


def read_script(
    text: str,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    path: str = "",
    passes_exits: bool = False,
    budget: Budget | None = None,
) -> Script:
    """Read a script as if it were called by ``path`` with ``arguments`` in ``environment``.

    Args:
        passes_exits: go on after ``exit``, to what would run where whatever the script looks for is found.
        budget: what is spent on the script already, where it is read again.

    Raises:
        ValueError: bash could not read it either, or it does more than a script that launches a run.
    """
    if len(text) > _LONGEST_SCRIPT:
        raise ValueError(
            f"found a script of {len(text):,} characters, expected one that launches a run (at most "
            f"{_LONGEST_SCRIPT:,}). Give that one."
        )
    variables = {"OPTIND": "1", **(environment or {})}
    state = State(variables=variables, arguments=list(arguments), substitute=substituted, path=path)
    state.budget = budget or state.budget
    if path:
        state.put_array("BASH_SOURCE", {"0": path})
    if "\r\n" in text:
        state.note(1, "the lines end as on Windows, which bash cannot run; they are read as if they did not")
    try:
        tree, notes = parse(text.replace("\r\n", "\n").replace(UNKNOWN, ""))
        state.notes |= dict.fromkeys(notes)
        walk = Walk(state, passes_exits=passes_exits)
        walk.script(tree)
    except Spent as spent:
        raise ValueError(str(spent)) from None
    except RecursionError:
        raise ValueError(
            "found commands nested deeper than can be read, expected a script that launches a run."
        ) from None
    commands, inside = (
        [[word.replace(UNKNOWN, "") for word in words] for words in found] for found in (walk.commands, state.inside)
    )
    variables = {name: value.replace(UNKNOWN, "") for name, value in state.variables.items()}
    return Script(commands, inside, variables, [note.replace(UNKNOWN, "") for note in state.notes])
