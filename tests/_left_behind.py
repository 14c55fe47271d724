"""Leftovers of a run on the machine: processes and names in shared memory."""

from __future__ import annotations

import os
from contextlib import suppress
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


def leaked_shared_memory(before: set[str], *, folder: str = "/dev/shm") -> set[str]:
    """New names in the folder that no living process has mapped; those that meanwhile went are another run's.

    By inode: a semaphore is mapped under a name of its own before it gets the one that others open it by. A folder is
    somebody's while any file in it is.
    """
    new = {name: _inodes(Path(folder, name)) for name in set(os.listdir(folder)) - before}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = [line for line in maps.read_text().splitlines() if f"{folder}/" in line]
        except OSError:  # ended meanwhile, or another user's
            continue
        mapped = {int(line.split()[4]) for line in lines}
        new = {name: inodes for name, inodes in new.items() if not inodes & mapped}
    return new.keys() & set(os.listdir(folder))


def _inodes(path: Path) -> set[int]:
    """Of the file, or of the folder and the files in it; those that go meanwhile do not count."""
    found = set()
    for each in [path, *path.glob("*")]:
        with suppress(FileNotFoundError):
            found.add(each.stat().st_ino)
    return found
