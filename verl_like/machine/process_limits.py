"""Check the limits on open files and processes; below them, libraries fail with unrelated error messages."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from verl_like.machine.cores import CGROUPS
from verl_like.machine.findings import Finding, Status

# PPO of two workers with vLLM on two cores used up to 128 files in a process and 363 threads in all. Fewer than the
# needed numbers are too few for any run; a larger run may need more than USUAL_TASKS.
NEEDED_FILES = 256
NEEDED_TASKS, USUAL_TASKS = 250, 500
ULIMIT = "ulimit -u"


def open_files() -> Finding:
    """Check how many files each process may hold open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= NEEDED_FILES:
        return Finding(name="open files", value="no limit" if soft == resource.RLIM_INFINITY else f"{soft} per process")
    able = hard == resource.RLIM_INFINITY or hard >= NEEDED_FILES
    remedy = "ulimit -n 65536" if able else "raise the hard limit as root (nofile in /etc/security/limits.conf)"
    value = f"a process may open {soft} (ulimit -n), a run needs at least {NEEDED_FILES}"
    return Finding(name="open files", value=value, status=Status.MISSING, remedy=remedy)


def processes() -> Finding:
    """Check how many more processes and threads may be started."""
    own = Path("/proc/self/cgroup")
    free = [*_left_by_user(), *left_in_groups(own.read_text() if own.is_file() else "", CGROUPS)]
    if not free:
        return Finding(name="processes", value="no limit")
    count, where = min(free)
    value = f"{max(count, 0)} more may be started, including threads ({where})"
    if count >= USUAL_TASKS:
        return Finding(name="processes", value=value)
    status, needed = (
        (Status.MISSING, f"a run needs at least {NEEDED_TASKS}")
        if count < NEEDED_TASKS
        else (Status.NOTE, f"a run of two workers may need {USUAL_TASKS}")
    )
    remedy = "ulimit -u 4096" if where == ULIMIT else "raise the limit of the container (docker run --pids-limit)"
    return Finding(name="processes", value=f"{value}, {needed}", status=status, remedy=remedy)


def _left_by_user() -> list[tuple[int, str]]:
    """Return what this user's process limit leaves; root has no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft == resource.RLIM_INFINITY or os.geteuid() == 0:
        return []
    return [(soft - _tasks_of(os.getuid()), ULIMIT)]


def _tasks_of(user: int) -> int:
    """Count the threads of all processes of a user."""
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.stat(f"/proc/{entry}").st_uid == user:
                    count += len(os.listdir(f"/proc/{entry}/task"))
            except OSError:  # ended meanwhile
                continue
    return count


def left_in_groups(own: str, root: Path) -> list[tuple[int, str]]:
    """Return what each control group of this process leaves; arguments as in ``cores.quota_cores``."""
    found = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "pids" not in controllers.split(","):
            continue
        mounted = root / controllers if controllers else root
        group = mounted / path.lstrip("/")
        for folder in (group, *group.parents):
            limit, current = folder / "pids.max", folder / "pids.current"
            if folder.is_relative_to(mounted) and limit.is_file() and (text := limit.read_text().strip()) != "max":
                found.append((int(text) - int(current.read_text()), "pids.max"))
    return found
