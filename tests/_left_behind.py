"""What a run leaves on the machine: processes and names in shared memory."""

from __future__ import annotations

import os
from pathlib import Path

import psutil


def still_running(members: list[psutil.Process]) -> list[str]:
    """Command lines of those that still run."""
    found = []
    for member in members:
        try:
            if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{member.pid} {' '.join(member.cmdline())}")
        except psutil.NoSuchProcess:
            continue
    return found


def leaked_shared_memory(before: set[str]) -> set[str]:
    """New names in /dev/shm that no living process has mapped; those that meanwhile went are another run's."""
    new = set(os.listdir("/dev/shm")) - before
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:  # ended meanwhile, or another user's
            continue
        new = {name for name in new if f"/dev/shm/{name}" not in text}
    return new & set(os.listdir("/dev/shm"))
