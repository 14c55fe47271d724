"""Settings after ``verl-like train --from`` or in Python, and the recipe of ``verl-like migrate``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_like.config.compose import read
from verl_like.config.readers import CommandSettings, OnlyOnGpus, TranslatedRecipe
from verl_like.config.reading_limits import bounded
from verl_like_migrate.migration import migrate, settings_of, translated
from verl_like_migrate.modalities import refuses_model
from verl_like_migrate.programs import jobs
from verl_like_migrate.settings import read_words
from verl_like_migrate.tables import Table, table
from verl_like_migrate.translation import Translation, translate


def command(peer: str, words: Sequence[str], *, job: str) -> CommandSettings:
    """Read the words of another project's command.

    Args:
        job: the command of verl_like that corresponds to it.

    Raises:
        ValueError: the words are unreadable, or the project's commands for this job are not known.
    """
    if job not in jobs(peer):
        known = ", ".join(f"verl-like {each} --from {peer}" for each in jobs(peer))
        raise ValueError(
            f"found verl-like {job} --from {peer}, expected {known}. Write the settings in verl_like's own options "
            f"(`verl-like {job} --help`)."
        )
    with bounded("the command", remedy="Shorten references between values, nested brackets and long texts."):
        given = read_words(peer, words, folder=Path.cwd())
        found = translated(peer, given, job=job)
    summary = f"{found.summary()}. `verl-like migrate --from {peer} SCRIPT` shows each of them and writes a recipe."
    return CommandSettings(
        settings=settings_of(found),
        translated=_translated_options(found),
        problems=[*found.problems, *found.empty],
        notes=[*given.notes, summary],
    )


def arguments(interface: str, values: Mapping[str, Any], derived: Mapping[str, Any]) -> CommandSettings:
    """Translate the arguments of another project's configuration in Python."""
    known = table(interface)
    found = translate(known, values, derived=derived)
    idle = [f"{line.key} ({line.why})" for line in found.lines if _is_idle(known, line.key)]
    explained = [line for line in found.lines if line.kind == "converted" and line.settings and line.why]
    notes = [f"{line.text}: {line.why}" for line in explained if line.key in {**known.defaults, **known.unset}]
    return CommandSettings(
        settings=settings_of(found),
        translated=_translated_options(found),
        problems=[*found.problems, *found.empty],
        notes=[*notes, *([f"without effect here: {', '.join(idle)}"] if idle else [])],
    )


def _is_idle(known: Table, key: str) -> bool:
    entry = known.entry(key)
    return entry is not None and entry.kind == "without_effect"


def _translated_options(found: Translation) -> frozenset[str]:
    """Return the options that are set, except those that the command sets under verl_like's names."""
    return frozenset(name for name, _, _ in settings_of(found)) - {line.key for line in found.lines}


def recipe(peer: str, path: Path, arguments: Sequence[str], *, only_on_gpus: OnlyOnGpus) -> TranslatedRecipe:
    """Make a recipe from another project's script or YAML file.

    Args:
        arguments: the script's arguments, ``$1`` and so on.
        only_on_gpus: returns the options that need a GPU if this machine has none; they are dropped, as in
            ``train --from``.

    Raises:
        ValueError: the file is unreadable.
    """
    found = migrate(peer, path, arguments, environment=os.environ)
    config = read(None, [], settings=settings_of(found.translation))[0].config
    found = found.without_gpus(only_on_gpus(config) & _translated_options(found.translation))
    why_not_run = "its model reads images, video or audio, and is not one of the supported ones (docs/vision.md)."
    return TranslatedRecipe(
        text=found.recipe(),
        report=found.table(),
        job=found.translation.job,
        num_problems=len(found.translation.problems),
        why_not_run=why_not_run if refuses_model(found.translation) else "",
    )
