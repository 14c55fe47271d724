"""Readers of other projects' commands and files, which separate packages provide.

A package registers its reader in the entry point group ``verl_like.command_readers``. Readers are optional: without
one, commands in this project's options work, but hints on other projects' names are missing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from verl_like.config.schema import Config

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "verl_like.command_readers"
SHIPPED = "verl_like_migrate.reader:READER"  # the one in this repository

OnlyOnGpus = Callable[[Config], Set[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandSettings:
    """The settings of another project's command, under this project's names.

    Args:
        settings: (option, value, where it came from), as :func:`verl_like.config.compose.read` takes them.
        translated: the options among them that the command sets under the other project's names, or that follow from
            that project's defaults. Options that the command sets under this project's names are not included.
        problems: settings without an equivalent here or without a value, one sentence each.
        notes: messages to log, one sentence each.
    """

    settings: list[tuple[str, Any, str]]
    translated: frozenset[str]
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslatedRecipe:
    """A recipe made of another project's script or file.

    Args:
        text: the recipe.
        report: the translation of each setting, as Markdown.
        job: the command that runs the recipe, such as ``train``.
        num_problems: number of settings without an equivalent here.
        why_not_run: the end of "It cannot be run: "; empty if the recipe can be run.
    """

    text: str
    report: str
    job: str
    num_problems: int
    why_not_run: str


class Reader(Protocol):
    """Reads commands and files of the projects that it names."""

    @property
    def projects(self) -> tuple[str, ...]:
        """Names that ``--from`` accepts."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Names of configurations in Python, such as ``trl_grpo``, whose arguments it translates."""

    def defaults(self, interface: str) -> Mapping[str, Any]:
        """Return the arguments of a configuration in Python with their defaults."""

    def arguments(self, interface: str, values: Mapping[str, Any], derived: Mapping[str, Any]) -> CommandSettings:
        """Translate the arguments that a script sets; all values are text, numbers, None, lists and mappings.

        Args:
            derived: name -> value of what the translation reads in addition, such as the number of devices.
        """

    def command(self, project: str, words: Sequence[str], *, job: str) -> CommandSettings:
        """Read the words of a command.

        Args:
            job: the command of verl_like that is to run them, such as ``train``.

        Raises:
            ValueError: the words are unreadable, or the project has no such command.
        """

    def recipe(
        self, project: str, path: Path, arguments: Sequence[str], *, only_on_gpus: OnlyOnGpus
    ) -> TranslatedRecipe:
        """Make a recipe from a script, which is not executed, or from a YAML file.

        Args:
            arguments: the script's arguments, ``$1`` and so on.
            only_on_gpus: returns the options that need a GPU if this machine has none.

        Raises:
            ValueError: the file is unreadable.
        """

    def key_hint(self, key: str, value: Any) -> str:
        """Return ``; write OPTION=VALUE`` for another project's key, or an empty string."""

    def value_hint(self, option: str, value: Any) -> str:
        """Return ``; it is PROJECT's name for VALUE`` for another project's value, or an empty string."""


@functools.cache
def readers() -> tuple[Reader, ...]:
    """Return the installed readers.

    The shipped reader is also looked up by name, because a checkout that is not installed has no entry points.
    """
    from importlib.metadata import EntryPoint, entry_points  # takes longer to import than the rest of this module

    shipped = EntryPoint(name="migrate", value=SHIPPED, group=GROUP)
    points = {point.value: point for point in (*entry_points(group=GROUP), shipped)}
    return tuple(reader for point in points.values() if (reader := _load(point)) is not None)


def _load(point: EntryPoint) -> Reader | None:
    """Import a reader; return None if its package is not installed."""
    try:
        return cast(Reader, point.load())
    except ModuleNotFoundError as error:
        if error.name != point.module.partition(".")[0]:
            raise
        return None


def projects() -> tuple[str, ...]:
    """Return the projects that have a reader."""
    return tuple(project for reader in readers() for project in reader.projects)


def reader_of(project: str) -> Reader:
    """Return the reader of a project.

    Raises:
        ValueError: the project has no reader.
    """
    found = next((reader for reader in readers() if project in reader.projects), None)
    if found is not None:
        return found
    if known := projects():
        raise ValueError(f"found {project}, expected one of {', '.join(known)}.")
    package = SHIPPED.partition(".")[0]
    raise ValueError(
        f"found {project}, but no package that reads other projects' commands; expected {package}. Install verl-like "
        "again, which contains it, or write the settings in verl_like's own options (`verl-like config --docs`)."
    )


def reader_of_interface(interface: str) -> Reader:
    """Return the reader of a configuration in Python.

    Raises:
        ValueError: the package that reads it is not installed.
    """
    found = next((reader for reader in readers() if interface in reader.interfaces), None)
    if found is None:
        package = SHIPPED.partition(".")[0]
        raise ValueError(
            f"found no package that translates the arguments of {interface}; expected {package}. Install verl-like "
            "again, which contains it."
        )
    return found


def key_hint(key: str, value: Any) -> str:
    """Return the first reader's hint on an unknown key, the end of a message; empty if no reader knows it."""
    return next((hint for reader in readers() if (hint := reader.key_hint(key, value))), "")


def value_hint(option: str, value: Any) -> str:
    """Return the first reader's hint on a value that an option does not accept; empty if no reader knows it."""
    return next((hint for reader in readers() if (hint := reader.value_hint(option, value))), "")
