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
from verl_like_migrate.modalities import supported_models
from verl_like_migrate.programs import PROGRAMS, Run, other_program, run_of, with_own_program
from verl_like_migrate.settings import Given, read_file, read_words
from verl_like_migrate.shell import Script, read_script
from verl_like_migrate.shell.budget import Budget
from verl_like_migrate.tables import shown, table
from verl_like_migrate.translation import EMPTY, KINDS, Line, Translation, translate

UNSET_RANK = re.compile(r"line \d+: (\w*RANK\w*) is not set")
HEADINGS = {
    "kept": "Kept",
    "renamed": "Renamed",
    "converted": "Converted",
    "without effect": "Without effect",
    EMPTY: "Empty",
    "unsupported": "Unsupported",
    "unknown": "Unknown",
}


@dataclass(frozen=True, slots=True)
class Migration:
    """The translation of a script or file.

    Args:
        notes: values that are known only when the script runs, and words that do not configure the run.
    """

    source: str
    translation: Translation
    notes: list[str]

    def without_gpus(self, names: Set[str]) -> Migration:
        """Drop options that need a GPU, and add a note that names them."""
        found = self.translation
        left_out = {name: value for name, value in {**found.defaults, **found.settings}.items() if name in names}
        if not left_out:
            return self
        dropped = " ".join(f"{name}={shown(value)}" for name, value in left_out.items())
        note = (
            f"dropped, because this machine has no GPU: {dropped}. On a machine with GPUs, migrate again or add them."
        )
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
        origins = dict.fromkeys(found.defaults, f"{found.peer}'s default")
        for line in found.lines:
            origins |= dict.fromkeys(line.settings, line.key)
        values = {**found.defaults, **found.settings}
        order = list(options())
        names = sorted(values, key=lambda name: next(i for i, option in enumerate(order) if name.startswith(option)))
        head = f"# From {on_one_line(self.source)}, by `verl-like migrate --from {found.peer}`.\n"
        head += "defaults:\n  - /config\n  - _self_\n\n"
        missing = "".join(f"# Unsupported: {on_one_line(problem)}\n" for problem in found.problems)
        missing += "".join(f"# Check: {on_one_line(note)}\n" for note in [*found.empty, *self.notes])
        return f"{missing}{head}{laid_out((name, values[name], origins[name]) for name in names)}"

    def table(self) -> str:
        """Report the translation of each setting, as Markdown."""
        parts = [f"{self.translation.summary()}."]
        for kind in KINDS:
            lines = [line for line in self.translation.lines if line.kind == kind]
            if lines:
                rows = "\n".join(f"| `{on_one_line(line.text)}` | {on_one_line(_effect(line))} |" for line in lines)
                parts.append(f"### {HEADINGS[kind]}\n\n| {self.translation.peer} | verl_like |\n|---|---|\n{rows}")
        if self.translation.defaults:
            rows = "\n".join(
                f"| `{on_one_line(f'{name}={shown(masked(value))}')}` |"
                for name, value in self.translation.defaults.items()
            )
            parts.append(
                f"### Defaults of {self.translation.peer} that differ from verl_like's\n\n| verl_like |\n|---|\n{rows}"
            )
        if self.notes:
            parts.append("### To check\n\n" + "\n".join(f"- {on_one_line(note)}" for note in self.notes))
        return "\n\n".join(parts) + "\n"


def _effect(line: Line) -> str:
    settings = ", ".join(f"`{name}={shown(masked(value, name))}`" for name, value in line.settings.items())
    return " ".join(part for part in (settings, f"({line.why})" if settings and line.why else line.why) if part)


def translated(peer: str, given: Given, *, job: str = "train") -> Translation:
    """Translate the settings; a missing settings file counts as an unsupported setting.

    Args:
        job: the command of verl_like that corresponds to the other project's command.
    """
    found = supported_models(translate(table(peer, job), given.values, removed=given.removed))
    absent = [
        Line(
            key=word,
            value=file,
            kind="unsupported",
            why="this file is neither in the working folder nor in the script's folder or a parent of it.",
        )
        for word, file in given.absent.items()
    ]
    return replace(found, lines=[*absent, *found.lines])


def settings_of(found: Translation) -> list[tuple[str, Any, str]]:
    """Return (option, value, origin) triples, as :func:`verl_like.config.compose.read` takes them."""
    keys = {name: line.key for line in found.lines for name in line.settings}
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
        raise ValueError(f"found no file {path}; give a launch script or a YAML file of {peer}.")
    with bounded(str(path), remedy=f"Give a script or a YAML file that launches a run of {peer}."):
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
            f"{path} starts no known program of {peer} ({', '.join(PROGRAMS[peer])}). Give the script that "
            f"does, or a YAML file of its settings." + "".join(f" Note on this script: {note}" for note in script.notes)
        )
    (run, about), *others = [each for each in commands if each[0].words] or commands
    notes = [*script.notes, *about]
    if others:
        notes.append(f"the script starts {len(others) + 1} runs; this is the first of them.")
    given = read_words(peer, run.words, folder=path.parent)
    return Migration(str(path), translated(peer, given, job=run.job), [*notes, *given.notes])


def refuse_other_program(peer: str, commands: Sequence[Sequence[str]]) -> None:
    """Raise if a command starts a program of that project for another task."""
    for command in commands:
        if (found := other_program(command, peer)) is not None:
            program, instead = found
            raise ValueError(f"it starts {peer}'s {program}, whose settings are not read: {instead}")


def _readings(path: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Script]:
    """Yield readings of the script: unchanged, then as on the first node, then with its exits ignored."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}. Give a script.") from None
    read = partial(read_script, text, arguments=arguments, path=str(path.absolute()), budget=Budget())
    script = read(environment=environment)
    yield script
    unset = [name for note in script.notes if (name := UNSET_RANK.match(note))]
    if unset:
        environment = {**environment, **{found[1]: "0" for found in unset}}
        script = read(environment=environment)
        script.notes[:0] = [f"{found[1]} is not set; the rank of the first node, 0, is assumed" for found in unset]
        yield script
    if any("the script ends here" in note for note in script.notes):
        yield read(environment=environment, passes_exits=True)


def _started(script: Script, peer: str) -> list[tuple[Run, list[str]]]:
    """Return the runs that a script starts, each with notes."""
    ran = [command for command in (*script.commands, *script.inside) if other_program(command, peer) is None]
    known = [(run, list[str]()) for command in ran if (run := run_of(command, peer)) is not None]
    own = [found for command in ran if (found := with_own_program(command, peer)) is not None]
    if known or not own:
        return known
    run, program = max(own, key=lambda found: len(found[0].words))  # other commands may prepare its inputs
    note = f"{program} is not a program of {peer}: only its settings are read, as {peer}'s."
    return [(run, [note])]
