"""Count the CPU cores that a run may use and divide them among workers and their threads.

With small models, cores go to workers first, up to the number that divides the batch and fits into memory. The
remaining cores become threads of the workers. Nothing was measured beyond two cores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
USUAL_WORKERS = 2  # for any batch; more only if they fit
MAX_WORKERS = 8  # each worker uses memory, reads the model and joins every gradient reduction
MIN_USED = 0.75  # fraction of the cores that must be in use to prefer more workers with fewer threads each


@dataclass(frozen=True, slots=True)
class Shares:
    """Division of a node's cores."""

    workers: int
    threads: int  # per worker


def usable_cores() -> int:
    """Return the cores that the scheduler allows this process; a quota is rounded down, to at least one."""
    own = Path("/proc/self/cgroup")
    quota = quota_cores(own.read_text() if own.is_file() else "", CGROUPS)
    affine = len(os.sched_getaffinity(0))
    return affine if quota is None else max(min(affine, int(quota)), 1)


def quota_cores(own: str, root: Path) -> float | None:
    """Return the smallest CPU quota among the control groups of a process, in cores; None if there is no quota.

    Args:
        own: content of its ``/proc/self/cgroup``: a line ``0::PATH`` (cgroup v2) or ``N:CONTROLLERS:PATH`` (v1).
        root: mount point of the control groups. In a container it shows the container's own group, whatever the path.
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
    """Compute the number of workers and threads.

    Args:
        kept: cores reserved for scorers, as far as two workers leave some.
        most: upper bound on the workers, from models and memory; applies above two workers.
        dealt: counts that the number of workers must divide; applies above two workers.
        multiple_of: ranks of an engine; more than two workers must be a multiple of it.
        workers, threads: requested values; 0 computes them.
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
    """Return the largest count whose threads use at least ``MIN_USED`` of the cores, else the one that uses most."""
    used = {count: count * (cores // count) for count in counts}
    enough = [count for count in counts if used[count] >= MIN_USED * cores]
    return max(enough, default=max(counts, key=lambda count: (used[count], count)))
