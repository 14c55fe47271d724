"""Builtin commands that change the state of the shell or test a condition."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from enum import Enum

from verl_like_migrate.shell.arithmetic import whole_number
from verl_like_migrate.shell.conditions import holds
from verl_like_migrate.shell.expansion import Expansion, Fragment
from verl_like_migrate.shell.lexer import ASSIGNMENT, Word
from verl_like_migrate.shell.state import State
from verl_like_migrate.shell.tree import Simple
from verl_like_migrate.shell.unknown import UNKNOWN, UnknownError
from verl_like_migrate.shell.words import assign, assigned_text, fields, split


class ExitStatus(Enum):
    """The status of a command. ``RAN`` counts as success before ``&&`` and ``||``, but decides no ``if``."""

    TRUE = "true"
    FALSE = "false"
    RAN = "ran"
    UNDECIDED = "undecided"

    @property
    def text(self) -> str:
        """Return the value of ``$?`` after the command."""
        return {ExitStatus.FALSE: "1", ExitStatus.UNDECIDED: UNKNOWN + "$?"}.get(self, "0")

    @staticmethod
    def of(answer: bool | None) -> ExitStatus:
        """Return the status of a condition."""
        return ExitStatus.UNDECIDED if answer is None else ExitStatus.TRUE if answer else ExitStatus.FALSE


def declare(node: Simple, state: State) -> list[str]:
    """Run ``export``, ``local`` and the like; return the expanded words."""
    command, flags = node.words[0].text, ""
    # All words are expanded before the first assignment.
    expanded: list[tuple[Word | None, str]] = []
    for written in node.words[1:]:
        if ASSIGNMENT.match(written.text):
            expanded.append((written, assigned_text(written, state)))
        else:
            expanded += [(None, text) for text in fields(written, state)]
    for word, text in expanded:
        if word is None and text[:1] in ("-", "+"):
            flags += text[1:]
            continue
        name = re.split(r"[\[+=]", word.text if word else text, maxsplit=1)[0]
        if command in ("local", "declare", "typeset") and "g" not in flags:
            state.make_local(name)
        if "A" in flags:
            state.keyed.add(name)
        if word:
            assign(word, state, text)
        elif "=" in text:
            state.put(name, text.partition("=")[2])
        elif "A" in flags or "a" in flags:
            state.put_array(name, {})
        elif command == "local":
            state.forget(name)
    return [command, *(_shown(word) + text if word else text for word, text in expanded)]


def _shown(word: Word) -> str:
    """Return ``name=`` of an assignment, and the whole text of an array assignment."""
    match = ASSIGNMENT.match(word.text)
    assert match, f"{word.text} assigns nothing"
    return match[0] if word.items is None else f"{match[0]}({' '.join(item.text for item in word.items)})"


def _test(words: list[str], node: Simple, state: State) -> ExitStatus:
    """Run ``test`` and ``[``."""
    try:
        if words[0] == "[" and words.pop() != "]":
            raise ValueError("found [ without ] as the last word, expected it after a space")
        return ExitStatus.of(holds(words[1:], number=Expansion(state, node.line).number, is_set=state.is_set))
    except ValueError as error:
        state.note(node.line, f"{error}; bash treats such a condition as false")
        return ExitStatus.FALSE


def _set(words: list[str], node: Simple, state: State) -> ExitStatus:
    rest = words[1:]
    while rest and rest[0][:1] in ("-", "+"):
        word = rest.pop(0)
        if word in ("--", "-"):
            break
        if word.endswith("o") and rest:
            rest.pop(0)
        if not rest:
            return ExitStatus.TRUE
    if len(words) > 1:
        state.arguments[:] = rest
    return ExitStatus.TRUE


def _shift(words: list[str], node: Simple, state: State) -> ExitStatus:
    count = whole_number(words[1]) if len(words) > 1 else 1
    if count is None or count < 0 or count > len(state.arguments):
        return ExitStatus.FALSE
    del state.arguments[:count]
    return ExitStatus.TRUE


def _unset(words: list[str], node: Simple, state: State) -> ExitStatus:
    for name in words[1:]:
        if not name.startswith("-"):
            state.forget(name)
    return ExitStatus.TRUE


def _let(words: list[str], node: Simple, state: State) -> ExitStatus:
    return calculate(words[1:], node.line, state)


def calculate(texts: list[str], line: int, state: State) -> ExitStatus:
    """Run ``let`` and ``((...))``: true if the last number is not 0."""
    status = ExitStatus.FALSE
    for text in texts:
        try:
            status = ExitStatus.of(Expansion(state, line).number(text) != 0)
        except UnknownError as error:
            state.note(line, f"{' '.join(text.split())} cannot be computed ({error})")
            status = ExitStatus.UNDECIDED
    return status


def _cd(words: list[str], node: Simple, state: State) -> ExitStatus:
    folder = words[1] if len(words) > 1 else state.variables.get("HOME", UNKNOWN + "$HOME")
    here = state.variables.get("PWD", UNKNOWN + "$PWD")
    is_known = UNKNOWN not in folder and (folder.startswith("/") or UNKNOWN not in here)
    state.put("OLDPWD", here)
    state.put("PWD", posixpath.normpath(posixpath.join(here, folder)) if is_known else UNKNOWN + "$PWD")
    return ExitStatus.RAN


def _options(words: list[str], with_value: str) -> tuple[dict[str, str], list[str]]:
    """Return one-letter options with their values, and the remaining words."""
    options: dict[str, str] = {}
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        for at, letter in enumerate(word[1:], 2):
            if letter in with_value:
                options[letter] = word[at:] or (rest.pop(0) if rest else "")
                break
            options[letter] = ""
    return options, rest


def _read(words: list[str], node: Simple, state: State) -> ExitStatus:
    options, names = _options(words, "adinNptu")
    names = names or [options.get("a", "REPLY")]
    if not node.given:
        return _unknown(names, node, state)
    text = Expansion(state, node.line).text(node.given[-1].text)
    delimiter = options.get("d", "\n")
    text = text.partition(delimiter)[0] if delimiter else text
    separators = state.variables.get("IFS", " \t\n")
    spaces = "".join(sign for sign in separators if sign.isspace())
    if "a" in options:
        items = split([Fragment(text.strip(spaces), is_quoted=False, splits=True)], separators)
        state.put_array(options["a"], {str(number): item for number, item in enumerate(items)})
    for number, name in enumerate(names if "a" not in options else [], 1):
        text = text.strip(spaces)
        ends = re.search(f"[{re.escape(separators)}]", text) if separators and number < len(names) else None
        state.put(name, text[: ends.start()] if ends else text)
        text = text[ends.end() :] if ends else ""
    return ExitStatus.FALSE if delimiter == "" else ExitStatus.TRUE


def _mapfile(words: list[str], node: Simple, state: State) -> ExitStatus:
    _, names = _options(words, "dnOsuCc")
    names = names or ["MAPFILE"]
    if not node.given:
        return _unknown(names, node, state)
    lines = Expansion(state, node.line).text(node.given[-1].text).splitlines()
    state.put_array(names[0], {str(number): line for number, line in enumerate(lines)})
    return ExitStatus.TRUE


def _unknown(names: list[str], node: Simple, state: State) -> ExitStatus:
    for name in names:
        state.put(name, f"{UNKNOWN}${name}")
    # Assignments may precede the command.
    command = next(word.text for word in node.words if not ASSIGNMENT.match(word.text))
    state.note(node.line, f"the value that {command} assigns to {' '.join(names)} is unknown")
    return ExitStatus.RAN


def _getopts(words: list[str], node: Simple, state: State) -> ExitStatus:
    return ExitStatus.UNDECIDED if any(word.startswith("-") for word in state.arguments) else ExitStatus.FALSE


BUILTINS: dict[str, Callable[[list[str], Simple, State], ExitStatus]] = {
    "[": _test,
    "test": _test,
    ":": lambda words, node, state: ExitStatus.TRUE,
    "true": lambda words, node, state: ExitStatus.TRUE,
    "false": lambda words, node, state: ExitStatus.FALSE,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
    "let": _let,
    "cd": _cd,
    "read": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "getopts": _getopts,
}
