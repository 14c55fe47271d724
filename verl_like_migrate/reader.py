"""The reader that verl_like finds by its entry point (``verl_like/config/readers.py`` describes the methods).

Methods import what they need: a hint reads tables of keys, and only a command or a script needs the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_like.config.readers import CommandSettings, OnlyOnGpus, Reader, TranslatedRecipe
from verl_like_migrate.peers import INTERFACES, PEERS


class OtherProjects:
    """Reads commands, launch scripts and YAML files of verl, EasyR1 and OpenRLHF, and TRL's arguments in Python."""

    projects = PEERS
    interfaces = INTERFACES

    def command(self, project: str, words: Sequence[str], *, job: str) -> CommandSettings:
        from verl_like_migrate.command import command

        return command(project, words, job=job)

    def recipe(
        self, project: str, path: Path, arguments: Sequence[str], *, only_on_gpus: OnlyOnGpus
    ) -> TranslatedRecipe:
        from verl_like_migrate.command import recipe

        return recipe(project, path, arguments, only_on_gpus=only_on_gpus)

    def defaults(self, interface: str) -> dict[str, Any]:
        from verl_like_migrate.tables import table

        known = table(interface)
        return {**known.unset, **known.defaults}

    def arguments(self, interface: str, values: Mapping[str, Any], derived: Mapping[str, Any]) -> CommandSettings:
        from verl_like_migrate.command import arguments

        return arguments(interface, values, derived)

    def key_hint(self, key: str, value: Any) -> str:
        from verl_like_migrate.hints import key_hint

        return key_hint(key, value)

    def value_hint(self, option: str, value: Any) -> str:
        from verl_like_migrate.hints import value_hint

        return value_hint(option, value)


READER: Reader = OtherProjects()
