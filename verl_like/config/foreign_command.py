"""Compose the configuration of another project's command (``--from``) or arguments; write a recipe of one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_like.config.compose import Composed, read
from verl_like.config.readers import CommandSettings, OnlyOnGpus, reader_of, reader_of_interface
from verl_like.config.schema import Config
from verl_like.disk import writing

log = logging.getLogger(__name__)


def read_command(
    project: str, words: Sequence[str], *, job: str = "train", only_on_gpus: OnlyOnGpus = lambda config: frozenset()
) -> tuple[Composed, list[str]]:
    """Compose the configuration that a command of ``project`` describes; return it and its problems.

    Args:
        job: the command of verl_like that is to run it.
        only_on_gpus: returns the options that need a GPU if this machine has none, else an empty set. Options of
            this set that come from the other project's settings are dropped with a log message, because its scripts
            are written for GPUs.

    Raises:
        ValueError: the words are unreadable, or the project has no reader.
    """
    found = reader_of(project).command(project, words, job=job)
    for note in found.notes:
        log.info(note)
    return _composed(found, only_on_gpus)


def read_arguments(
    interface: str,
    values: Mapping[str, Any],
    derived: Mapping[str, Any],
    own: Sequence[tuple[str, Any, str]],
    *,
    only_on_gpus: OnlyOnGpus = lambda config: frozenset(),
) -> tuple[Config, list[str]]:
    """Compose the configuration that another project's arguments in Python describe; return it and its problems.

    Notes on the translation are logged as one warning.

    Args:
        values: name -> value of the arguments that a script sets.
        derived: name -> value of what the translation reads in addition.
        own: options of verl_like with value and origin, which win.

    Raises:
        ValueError: the interface has no reader.
    """
    found = reader_of_interface(interface).arguments(interface, values, derived)
    if found.notes:
        log.warning("%s: %s", interface, "; ".join(found.notes))
    composed, problems = _composed(replace(found, settings=[*found.settings, *own]), only_on_gpus)
    return composed.config, problems


def _composed(found: CommandSettings, only_on_gpus: OnlyOnGpus) -> tuple[Composed, list[str]]:
    composed, problems = read(None, [], settings=found.settings)
    if left_out := only_on_gpus(composed.config) & found.translated:
        log.info("this machine has no GPU, so these settings are dropped: %s.", ", ".join(sorted(left_out)))
        composed, problems = read(None, [], settings=[each for each in found.settings if each[0] not in left_out])
    return composed, [*found.problems, *problems]


def write_recipe(
    project: str,
    path: Path,
    arguments: Sequence[str],
    *,
    out: Path | None,
    only_on_gpus: OnlyOnGpus = lambda config: frozenset(),
) -> tuple[str, int]:
    """Write a recipe of a script or a file of ``project``.

    Args:
        arguments: the script's arguments, ``$1`` and so on.
        out: the recipe's file; None names it after ``path``.
        only_on_gpus: as in :func:`read_command`, so that recipe and command give the same configuration.

    Returns:
        A report on each setting, and the exit status: 1 if some settings have no equivalent here.

    Raises:
        ValueError: the file is unreadable, or the recipe exists and differs.
    """
    found = reader_of(project).recipe(project, path, arguments, only_on_gpus=only_on_gpus)
    out = out or Path.cwd() / f"{path.stem}{'.verl_like' * (path.suffix != '.sh')}.yaml"
    if out.is_dir():
        raise ValueError(f"--out is {out}, which is a folder; expected the name of a YAML file.")
    if out.exists() and out.read_text() != found.text:
        raise ValueError(f"{out} exists with other content. Choose another file with --out.")
    with writing(out, option="--out"):
        out.write_text(found.text)
    run = f"It cannot be run: {found.why_not_run}" if found.why_not_run else f"Run:    verl-like {found.job} {out}"
    missing = found.num_problems
    end = f"\n{missing} settings have no equivalent here: see the recipe's first lines." if missing else ""
    return f"{found.report}\nRecipe: {out}\n{run}{end}", int(missing > 0)
