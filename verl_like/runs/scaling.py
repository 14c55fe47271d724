"""``verl-like scale``: another number of rollout workers for a run in progress."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from verl_like.checks.pools import ROLLOUT
from verl_like.config.compose import compose_run
from verl_like.telemetry.trackers import write_atomically

log = logging.getLogger(__name__)


def request(run: Path, words: list[str]) -> str:
    """Ask a run for other numbers of workers, which it takes over at its next sync; return what to print.

    Args:
        words: ``rollout=N``.

    Raises:
        ValueError: the run has no separate engines, or the numbers cannot work.
    """
    config = compose_run(run, []).config
    size = config.rollout.tensor_parallel_size
    example = f"Give e.g. rollout={2 * size}"
    if ROLLOUT not in config.cluster.placement:
        raise ValueError(
            f"{run} was started without a pool {ROLLOUT} in cluster.placement, so its engines share the trainer's "
            "workers. Start it with e.g. cluster.placement={trainer: 1, rollout: 1}."
        )
    name, _, number = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if name != ROLLOUT or not number.isdecimal():
        raise ValueError(f"scale got {' '.join(words) or 'no number'}, but expects rollout=WORKERS. {example}.")
    if not int(number) or int(number) % size:
        raise ValueError(
            f"rollout={number} is not a positive multiple of rollout.tensor_parallel_size={size}, the workers of an "
            f"engine. {example}."
        )
    write_atomically(_file(run), json.dumps({ROLLOUT: int(number)}))
    return f"{run} is asked for {int(number) // size} engines; it starts or ends some at its next sync"


def wanted_workers(run: Path) -> int | None:
    """Return the rollout workers that :func:`request` has asked for; None if nobody has."""
    path = _file(run)
    try:
        return int(json.loads(path.read_text())[ROLLOUT]) if path.exists() else None
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.warning("%s cannot be read (%s), so the number of engines stays", path, error)
        return None


def _file(run: Path) -> Path:
    return run / "scale.json"
