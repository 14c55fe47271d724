"""Read launch scripts like bash, without running anything.

Values that only a running shell knows, such as the output of most commands or the existence of files, remain in the
words as written, with a note. Commands are assumed to succeed.
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

    ``commands`` are the words of every simple command reached, in sequence, including builtins such as ``export``.
    Function calls are replaced by the commands in the function, and assignments before a command are not included.
    ``inside`` are the commands in each ``$(...)`` with unknown output.
    ``variables`` are those set at the end, by the environment or the script, without arrays.
    ``notes`` are sentences with line numbers on unknown values.
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
        passes_exits: continue after ``exit``, as if all checks of the script succeeded.
        budget: the budget of an earlier reading of the same script.

    Raises:
        ValueError: the syntax is invalid in bash, or the script does more than launch a run.
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
        state.note(1, "the lines end as on Windows, which bash cannot run; they are read with Unix line ends")
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
