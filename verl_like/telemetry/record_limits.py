"""Limits on the records that grow with a run's steps; records beyond their limit are thinned, the older part first."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from verl_like.context import current
from verl_like.disk import writing

GIB = 2**30
UNLIMITED = float("inf")
# Shares of trainer.max_records_gib. FAILURES is for failed reward samples, which scorer hosts write.
SAMPLES, LEDGER, TRACE, SNAPSHOTS, FAILURES = 0.45, 0.2, 0.1, 0.15, 0.1

log = logging.getLogger(__name__)
_STEP = re.compile(rb'\{"step": (\d+)')  # beginning of each row of a ledger
_NAMES_A_PROCESS = b'{"ph": "M"'


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Largest size in bytes of each kind of record in a run's folder.

    Args:
        max_gib: ``trainer.max_records_gib``; 0 for no limit.
    """

    max_gib: float = 0.0

    @property
    def samples(self) -> float:
        return self._share(SAMPLES)

    @property
    def ledger(self) -> float:
        return self._share(LEDGER)

    @property
    def trace(self) -> float:
        return self._share(TRACE)

    @property
    def snapshots(self) -> float:
        return self._share(SNAPSHOTS)

    @property
    def failures(self) -> float:
        return self._share(FAILURES)

    def _share(self, of: float) -> float:
        return self.max_gib * GIB * of if self.max_gib else UNLIMITED


def thin_ledger(path: Path) -> None:
    """Drop the rows of a quarter of the file's steps, chosen by :func:`_thinned`."""
    with path.open("rb") as rows:
        steps = list(dict.fromkeys(_steps(rows)))
    dropped = set(_thinned(steps)) if steps else set()
    with path.open("rb") as rows:
        kept = (row for row in rows if (found := _STEP.match(row)) and int(found[1]) not in dropped)
        _replace(path, kept)
    _warn(path)


def _steps(rows: BinaryIO) -> Iterator[int]:
    return (int(found[1]) for row in rows if (found := _STEP.match(row)))


def thin_trace(path: Path) -> None:
    """Drop the older half of a trace, one event per line, except the events that name its processes."""
    half = path.stat().st_size // 2
    with path.open("rb") as lines:
        _replace(path, _newer_half(lines, half))
    _warn(path)


def _newer_half(lines: BinaryIO, half: int) -> Iterator[bytes]:
    num_bytes = 0
    for line in lines:
        num_bytes += len(line)
        if num_bytes > half or line.startswith((b"[", _NAMES_A_PROCESS)):
            yield line


def thin_samples(folder: Path, max_bytes: float) -> None:
    """Remove the sample files of some older steps (:func:`_thinned`) until they take at most ``max_bytes``.

    Files of training steps and of validations are thinned separately, the larger kind first.
    """
    kinds = [_by_step(folder, kind) for kind in ("step", "val_step")]
    while _size(*kinds) > max_bytes:
        largest = max(kinds, key=_size)
        dropped = _thinned(sorted(largest)) if len(largest) > 2 else []
        for step in dropped:
            for path in largest.pop(step):
                path.unlink(missing_ok=True)
        if not dropped:
            return
        _warn(folder)


_Files = dict[int, list[Path]]


def _by_step(folder: Path, kind: str) -> _Files:
    files: _Files = {}
    for path in folder.glob(f"{kind}_*"):
        if found := re.match(rf"{kind}_(\d+)\.", path.name):
            files.setdefault(int(found[1]), []).append(path)
    return files


def _size(*kinds: _Files) -> int:
    return sum(path.stat().st_size for files in kinds for paths in files.values() for path in paths)


def _thinned(steps: Sequence[int]) -> list[int]:
    """Return half of the older half of these steps, sorted as given; the remaining steps are evenly spaced.

    The first step and the newest half are never returned.
    """
    older = steps[: len(steps) - len(steps) // 2]
    spacing = (older[-1] - older[0]) / max(len(older) // 2, 1)
    dropped, last_kept = [], older[0]
    for step in older[1:]:
        if step - last_kept <= spacing:
            dropped.append(step)
        else:
            last_kept = step
    return dropped


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    """Replace a file by these lines; a crash leaves the old or the new file."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        with partial.open("wb") as out:
            out.writelines(lines)
        partial.replace(path)


@dataclass(slots=True)
class _Warned:
    paths: set[Path] = field(default_factory=set)  # records of which this process has warned


def _warn(what: Path) -> None:
    """Warn once per record and process that older parts are dropped."""
    warned = current(_Warned).paths
    if what not in warned:
        warned.add(what)
        log.warning(
            "%s has reached its share of trainer.max_records_gib: older parts are dropped from now on. "
            "Raise trainer.max_records_gib to keep more, or set it to 0 to keep all.",
            what,
        )
