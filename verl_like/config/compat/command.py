"""``verl-like migrate``, and the settings of another project behind ``verl-like train --from``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from verl_like.config.compat.migration import migrate, settings_of, translated
from verl_like.config.compat.senses import reads_more
from verl_like.config.compat.translation import Translation
from verl_like.config.compat.words import read_words
from verl_like.config.compose import Composed, read
from verl_like.config.reading_limits import bounded
from verl_like.config.schema import Config
from verl_like.disk import writing

log = logging.getLogger(__name__)

OnlyOnGpus = Callable[[Config], Set[str]]


def read_command(
    peer: str, words: Sequence[str], *, only_on_gpus: OnlyOnGpus = lambda config: frozenset()
) -> tuple[Composed, list[str]]:
    """The configuration that another project's settings are here, and all that is wrong with them.

    Args:
        only_on_gpus: the options that a machine without GPUs cannot follow, none on one that has some. Where the other
            project's settings made them they are left out, which is told: its scripts are written for GPUs.

    Raises:
        ValueError: words that nobody can read.
    """
    with bounded("the command", remedy="Shorten it: values that refer to others, nested brackets, long texts."):
        given = read_words(peer, words, folder=Path.cwd())
        found = translated(peer, given)
    for note in given.notes:
        log.info(note)
    log.info("%s. `verl-like migrate --from %s SCRIPT` shows each of them and writes a recipe.", found.told(), peer)
    settings = settings_of(found)
    composed, problems = read(None, [], settings=settings)
    if left_out := _only_on_gpus(found, composed.config, only_on_gpus):
        log.info("there is no GPU here, so these are left out: %s.", ", ".join(sorted(left_out)))
        composed, problems = read(None, [], settings=[each for each in settings if each[0] not in left_out])
    return composed, [*found.problems, *found.empty, *problems]


def _only_on_gpus(found: Translation, config: Config, only_on_gpus: OnlyOnGpus) -> Set[str]:
    """The options that a machine without GPUs cannot follow, as far as the other project's settings made them."""
    own = {line.key for line in found.lines}  # ours among theirs are meant
    return (only_on_gpus(config) & {name for name, _, _ in settings_of(found)}) - own


def migrated(
    peer: str,
    path: Path,
    arguments: Sequence[str],
    *,
    out: Path | None,
    only_on_gpus: OnlyOnGpus = lambda config: frozenset(),
) -> tuple[str, int]:
    """Write the recipe; what became of each setting, and the exit status: 1 where some cannot be had here.

    Args:
        only_on_gpus: as of :func:`read_command`: the recipe and the command are the same configuration.

    Raises:
        ValueError: a file that cannot be read, or a recipe that is there already and says something else.
    """
    found = migrate(peer, path, arguments, environment=os.environ)
    config = read(None, [], settings=settings_of(found.translation))[0].config
    found = found.without_gpus(_only_on_gpus(found.translation, config, only_on_gpus))
    out = out or Path.cwd() / f"{path.stem}{'.verl_like' * (path.suffix != '.sh')}.yaml"
    recipe = found.recipe()
    if out.is_dir():
        raise ValueError(f"--out is {out}, which is a folder; expected the name of a YAML file.")
    if out.exists() and out.read_text() != recipe:
        raise ValueError(f"{out} is there already and says something else. Choose another with --out.")
    with writing(out, option="--out"):
        out.write_text(recipe)
    missing = len(found.translation.problems)
    end = f"\n{missing} settings cannot be had here: see the recipe's first lines." if missing else ""
    if reads_more(found.translation):
        run = "It cannot be run: its model reads pictures, video or sound, and text alone is trained on here."
    else:
        run = f"Run:    verl-like train {out}"
    return f"{found.table()}\nRecipe: {out}\n{run}{end}", int(missing > 0)
