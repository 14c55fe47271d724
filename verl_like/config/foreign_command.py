"""Compose the configuration of another project's command (``train --from``); write a recipe of one (``migrate``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from verl_like.config.compose import Composed, read
from verl_like.config.readers import OnlyOnGpus, reader_of
from verl_like.disk import writing

log = logging.getLogger(__name__)


def read_command(
    project: str, words: Sequence[str], *, only_on_gpus: OnlyOnGpus = lambda config: frozenset()
) -> tuple[Composed, list[str]]:
    """Compose the configuration that a command of ``project`` describes; return it with everything wrong with it.

    Args:
        only_on_gpus: returns the options that a machine without GPUs cannot follow, and none on one that has some.
            Those that the other project's settings make are left out with a log message, because its scripts are
            written for GPUs.

    Raises:
        ValueError: words that cannot be read, or a project without a reader.
    """
    found = reader_of(project).command(project, words)
    for note in found.notes:
        log.info(note)
    composed, problems = read(None, [], settings=found.settings)
    if left_out := only_on_gpus(composed.config) & found.translated:
        log.info("there is no GPU here, so these are left out: %s.", ", ".join(sorted(left_out)))
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
        arguments: of the script, its ``$1`` and so on.
        out: the recipe's file; None names it after ``path``.
        only_on_gpus: as in :func:`read_command`; the recipe and the command are the same configuration.

    Returns:
        What became of each setting, and the exit status: 1 where some cannot be had here.

    Raises:
        ValueError: a file that cannot be read, or a recipe that exists and differs.
    """
    found = reader_of(project).recipe(project, path, arguments, only_on_gpus=only_on_gpus)
    out = out or Path.cwd() / f"{path.stem}{'.verl_like' * (path.suffix != '.sh')}.yaml"
    if out.is_dir():
        raise ValueError(f"--out is {out}, which is a folder; expected the name of a YAML file.")
    if out.exists() and out.read_text() != found.text:
        raise ValueError(f"{out} is there already and says something else. Choose another with --out.")
    with writing(out, option="--out"):
        out.write_text(found.text)
    run = f"It cannot be run: {found.why_not_run}" if found.why_not_run else f"Run:    verl-like train {out}"
    missing = found.num_problems
    end = f"\n{missing} settings cannot be had here: see the recipe's first lines." if missing else ""
    return f"{found.report}\nRecipe: {out}\n{run}{end}", int(missing > 0)
