"""The CPU cores that a run may really use, and how they are shared out to workers and their threads.

Where models are small they go to workers first, as many as the batch can be dealt to and memory holds, and to the
workers' threads then. Beyond two cores nothing was measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
USUAL_WORKERS = 2  # whatever the batch is; more only where they fit
MAX_WORKERS = 8  # each takes its memory, reads the model, and has a part in every sum of gradients
MIN_USED = 0.75  # of the cores, for so many workers that each has but few threads


@dataclass(frozen=True, slots=True)
class Shares:
    """What becomes of a node's cores."""

    workers: int
    threads: int  # of each


def usable_cores() -> int:
    """Those that the scheduler gives this process; of a quota the whole ones, at least one."""
    own = Path("/proc/self/cgroup")
    quota = quota_cores(own.read_text() if own.is_file() else "", CGROUPS)
    affine = len(os.sched_getaffinity(0))
    return affine if quota is None else max(min(affine, int(quota)), 1)


def quota_cores(own: str, root: Path) -> float | None:
    """The smallest quota of the control groups that a process is in, in cores; None without any.

    Args:
        own: its ``/proc/self/cgroup``: a line ``0::PATH`` of the second version, ``N:CONTROLLERS:PATH`` of the first.
        root: where control groups are mounted. A container sees its own group there, whatever the path says.
    """
    found = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounted = root / controllers if controllers else root
        group = mounted / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(mounted):
                found += _quota_of(folder)
    return min(found, default=None)


def _quota_of(folder: Path) -> list[float]:
    limit, quota, period = folder / "cpu.max", folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    if limit.is_file():
        words = limit.read_text().split()
    elif quota.is_file() and period.is_file():
        words = [quota.read_text().strip(), period.read_text().strip()]
    else:
        return []
    return [] if words[0] in ("max", "-1") else [int(words[0]) / int(words[1])]


def shared_out(
    cores: int, *, kept: int, most: int, dealt: Sequence[int], multiple_of: int, workers: int, threads: int
) -> Shares:
    """The arithmetic of it.

    Args:
        kept: cores that scorers should have, as far as two workers leave some.
        most: more than two workers that models and memory allow.
        dealt: what more than two workers must divide.
        multiple_of: ranks of an engine, of which more than two workers must be a multiple.
        workers, threads: what is asked for; 0 leaves it to this.
    """
    left = max(cores - kept, 1)
    if not workers:
        usual = max(min(USUAL_WORKERS, cores // max(threads, 1)), 1)
        even = math.gcd(*dealt)
        fitting = [
            count
            for count in range(usual + 1, min(MAX_WORKERS, most, left // max(threads, 1)) + 1)
            if even % count == 0 and count % multiple_of == 0
        ]
        workers = _largest([usual, *fitting], left) if not threads else max([usual, *fitting])
    return Shares(workers, threads or max(left // workers, 1))


def _largest(counts: list[int], cores: int) -> int:
    """The most workers whose threads use nearly all cores, or else those that use most."""
    used = {count: count * (cores // count) for count in counts}
    enough = [count for count in counts if used[count] >= MIN_USED * cores]
    return max(enough, default=max(counts, key=lambda count: (used[count], count)))
