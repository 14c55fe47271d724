"""Make a recipe from another project's launch script or configuration file, with a report on each setting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from verl_like.config.options import options
from verl_like.config.reading_limits import bounded
from verl_like.config.render import laid_out, on_one_line
from verl_like.masking import masked
from verl_like_migrate.modalities import text_alone
from verl_like_migrate.settings import (
    PROGRAMS,
    Given,
    arguments_of,
    other_program,
    read_file,
    read_words,
    with_own_program,
)
from verl_like_migrate.shell import Script, read_script
from verl_like_migrate.shell.budget import Budget
from verl_like_migrate.tables import shown, table
from verl_like_migrate.translation import EMPTY, KINDS, Line, Translation, translate

UNSET_RANK = re.compile(r"line \d+: (\w*RANK\w*) is set nowhere")
HEADINGS = {
    "kept": "Kept",
    "renamed": "Renamed",
    "converted": "Converted",
    "without effect": "Without effect here",
    EMPTY: "Empty, and to look at",
    "not here": "Not here",
    "unknown": "Unknown",
}


@dataclass(frozen=True, slots=True)
class Migration:
    """The translation of a script or file.

    Args:
        notes: values that are known only when the script runs, and words without meaning for a run.
    """

    source: str
    translation: Translation
    notes: list[str]

    def without_gpus(self, names: Set[str]) -> Migration:
        """Leave out options that a machine without GPUs cannot follow, and add a note that names them."""
        found = self.translation
        left_out = {name: value for name, value in {**found.defaults, **found.settings}.items() if name in names}
        if not left_out:
            return self
        said = " ".join(f"{name}={shown(value)}" for name, value in left_out.items())
        note = f"left out, since this machine has no GPU: {said}. On one that has, migrate again or write them down."
        defaults, settings = (
            {name: value for name, value in values.items() if name not in names}
            for values in (found.defaults, found.settings)
        )
        return replace(
            self, translation=replace(found, defaults=defaults, settings=settings), notes=[note, *self.notes]
        )

    def recipe(self) -> str:
        """Return the recipe's text."""
        found = self.translation
        origins = dict.fromkeys(found.defaults, f"{found.peer}'s own default")
        for line in found.lines:
            origins |= dict.fromkeys(line.ours, line.key)
        values = {**found.defaults, **found.settings}
        order = list(options())
        names = sorted(values, key=lambda name: next(i for i, option in enumerate(order) if name.startswith(option)))
        head = f"# From {on_one_line(self.source)}, by `verl-like migrate --from {found.peer}`.\n"
        head += "defaults:\n  - /config\n  - _self_\n\n"
        missing = "".join(f"# Not here: {on_one_line(problem)}\n" for problem in found.problems)
        missing += "".join(f"# To look at: {on_one_line(note)}\n" for note in [*found.empty, *self.notes])
        return f"{missing}{head}{laid_out((name, values[name], origins[name]) for name in names)}"

    def table(self) -> str:
        """Report the translation of each setting, as Markdown."""
        parts = [f"{self.translation.told()}."]
        for kind in KINDS:
            lines = [line for line in self.translation.lines if line.kind == kind]
            if lines:
                rows = "\n".join(f"| `{on_one_line(line.said)}` | {on_one_line(_here(line))} |" for line in lines)
                parts.append(f"### {HEADINGS[kind]}\n\n| {self.translation.peer} | here |\n|---|---|\n{rows}")
        if self.translation.defaults:
            rows = "\n".join(
                f"| `{on_one_line(f'{name}={shown(masked(value))}')}` |"
                for name, value in self.translation.defaults.items()
            )
            parts.append(f"### Defaults of {self.translation.peer} that are other here\n\n| here |\n|---|\n{rows}")
        if self.notes:
            parts.append("### To look at\n\n" + "\n".join(f"- {on_one_line(note)}" for note in self.notes))
        return "\n\n".join(parts) + "\n"


def _here(line: Line) -> str:
    ours = ", ".join(f"`{name}={shown(masked(value, name))}`" for name, value in line.ours.items())
    return " ".join(part for part in (ours, f"({line.why})" if ours and line.why else line.why) if part)


def translated(peer: str, given: Given) -> Translation:
    """Translate the settings; a missing settings file counts as a setting without an equivalent here."""
    found = text_alone(translate(table(peer), given.values, removed=given.removed))
    absent = [
        Line(
            key=word, value=file, kind="not here", why="there is no such file here, nor in a folder around the script."
        )
        for word, file in given.absent.items()
    ]
    return replace(found, lines=[*absent, *found.lines])


def settings_of(found: Translation) -> list[tuple[str, Any, str]]:
    """Return (option, value, origin) triples, as :func:`verl_like.config.compose.read` takes them."""
    keys = {name: line.key for line in found.lines for name in line.ours}
    return [
        *((name, value, f"{found.peer}'s default") for name, value in found.defaults.items()),
        *((name, value, f"{found.peer}'s {keys[name]}") for name, value in found.settings.items()),
    ]


def migrate(peer: str, path: Path, arguments: Sequence[str], *, environment: Mapping[str, str]) -> Migration:
    """Read a shell script or a YAML file.

    Args:
        arguments: the script's arguments, ``$1`` and so on.

    Raises:
        ValueError: the file does not exist, is unreadable, or starts no program of that project.
    """
    if not path.is_file():
        raise ValueError(f"found no file {path}; give a launch script or a YAML file of {peer}'s.")
    with bounded(str(path), remedy=f"Give a script or a YAML file that launches a run of {peer}'s."):
        return _migrated(peer, path, arguments, environment)


def _migrated(peer: str, path: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Migration:
    if path.suffix in (".yaml", ".yml"):
        return Migration(str(path), translated(peer, read_file(path)), [])
    for script in _readings(path, arguments, environment):
        commands = _started(script, peer)
        if commands:
            break
    if not commands:
        refuse_other_program(peer, [*script.commands, *script.inside])
        raise ValueError(
            f"{path} starts nothing of {peer}'s that is known here ({', '.join(PROGRAMS[peer])}). Give the script that "
            f"does, or a YAML file of its settings." + "".join(f" Of this one: {note}" for note in script.notes)
        )
    (words, about), *others = [each for each in commands if each[0]] or commands
    notes = [*script.notes, *about]
    if others:
        notes.append(f"the script starts {len(others) + 1} runs; this is the first.")
    given = read_words(peer, words, folder=path.parent)
    return Migration(str(path), translated(peer, given), [*notes, *given.notes])


def refuse_other_program(peer: str, commands: Sequence[Sequence[str]]) -> None:
    """Raise if a command starts a program of that project that does no reinforcement learning."""
    for command in commands:
        if (found := other_program(command, peer)) is not None:
            program, instead = found
            raise ValueError(f"it starts {peer}'s {program}, whose settings are not read: {instead}")


def _readings(path: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Script]:
    """Yield readings of the script: unchanged, then as on the first node, then with its exits ignored."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}. Give a script.") from None
    read = partial(read_script, text, arguments=arguments, path=str(path.absolute()), budget=Budget())
    script = read(environment=environment)
    yield script
    unset = [name for note in script.notes if (name := UNSET_RANK.match(note))]
    if unset:
        environment = {**environment, **{found[1]: "0" for found in unset}}
        script = read(environment=environment)
        script.notes[:0] = [
            f"{found[1]} is set nowhere and is taken to be 0, that of the first node" for found in unset
        ]
        yield script
    if any("the script ends here" in note for note in script.notes):
        yield read(environment=environment, passes_exits=True)


def _started(script: Script, peer: str) -> list[tuple[list[str], list[str]]]:
    """Return the words of each run that a script starts, with notes."""
    ran = [command for command in (*script.commands, *script.inside) if other_program(command, peer) is None]
    known = [(words, list[str]()) for command in ran if (words := arguments_of(command, peer)) is not None]
    own = [found for command in ran if (found := with_own_program(command, peer)) is not None]
    if known or not own:
        return known
    words, program = max(own, key=lambda found: len(found[0]))  # other commands may prepare its inputs
    note = f"{program} is no program of {peer}'s: its settings are read as {peer}'s, and what else it does is not here."
    return [(words, [note])]
