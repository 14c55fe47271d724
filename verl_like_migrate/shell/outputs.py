"""Compute the output of commands that follows from their words alone, without running a program or reading a file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from verl_like_migrate.shell.arithmetic import whole_number
from verl_like_migrate.shell.expansion import Expansion
from verl_like_migrate.shell.state import State
from verl_like_migrate.shell.tree import Simple
from verl_like_migrate.shell.unknown import UNKNOWN

_MOST_NUMBERS = 10_000


def printed(words: list[str], node: Simple, state: State) -> str | None:
    """Return the output with its line end, or None if only running the command would determine it."""
    if words[0] not in _OUTPUTS:
        return None
    text = _OUTPUTS[words[0]](words[1:], node, state)
    return None if text is None or UNKNOWN in text else text


def _pwd(words: list[str], node: Simple, state: State) -> str | None:
    return f"{state.variables['PWD']}\n" if not words and "PWD" in state.variables else None


def _basename(words: list[str], node: Simple, state: State) -> str | None:
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        return None
    name = posixpath.basename(words[0].rstrip("/")) or words[0][:1]
    return f"{name.removesuffix(words[1]) or name if words[1:] else name}\n"


def _dirname(words: list[str], node: Simple, state: State) -> str | None:
    if len(words) != 1 or words[0].startswith("-"):
        return None
    folder = posixpath.dirname(words[0].rstrip("/")) if words[0].strip("/") else words[0][:1]
    return f"{folder or '.'}\n"


def _realpath(words: list[str], node: Simple, state: State) -> str | None:
    """Return the absolute path, assuming no symbolic links, which depend on the machine that runs the script."""
    paths = [word for word in words if word not in ("-f", "-e", "-m", "-s", "--")]
    if len(paths) != 1 or paths[0].startswith("-") or "PWD" not in state.variables:
        return None
    return f"{posixpath.normpath(posixpath.join(state.variables['PWD'], paths[0]))}\n"


def _readlink(words: list[str], node: Simple, state: State) -> str | None:
    return _realpath(words, node, state) if words[:1] in (["-f"], ["-e"], ["-m"]) else None


def _echo(words: list[str], node: Simple, state: State) -> str | None:
    if words and re.fullmatch(r"-[neE]+", words[0]):
        return " ".join(words[1:]) if words[0] == "-n" else None
    return f"{' '.join(words)}\n"


def _printf(words: list[str], node: Simple, state: State) -> str | None:
    match words:
        case ["%s" | "%s\\n" as form, text]:
            return text if form == "%s" else f"{text}\n"
    return None


def _cat(words: list[str], node: Simple, state: State) -> str | None:
    """Return the here-document; None for a file, which is not read."""
    return Expansion(state, node.line).text(node.given[-1].text) if node.given and not words else None


def _seq(words: list[str], node: Simple, state: State) -> str | None:
    numbers = [number for word in words if (number := whole_number(word)) is not None]
    if not 1 <= len(words) <= 3 or len(numbers) < len(words):
        return None
    *begins, last = numbers
    first, step = [*begins, *[1, 1][len(begins) :]]
    if step == 0 or abs(last - first) > _MOST_NUMBERS * abs(step):
        return None
    return "".join(f"{number}\n" for number in range(first, last + (1 if step > 0 else -1), step))


_OUTPUTS: dict[str, Callable[[list[str], Simple, State], str | None]] = {
    "pwd": _pwd,
    "basename": _basename,
    "dirname": _dirname,
    "realpath": _realpath,
    "readlink": _readlink,
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "seq": _seq,
}
