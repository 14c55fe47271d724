"""What a process gives up before it runs code that nobody has read. None of it needs privileges, and none can be taken
back.

Network, processes, signals and other processes' memory go by a filter of system calls (:mod:`system_calls`); files by
:mod:`landlock`. A kernel without Landlock (before 5.13) cannot tell folders apart: there, everything can be read and
nothing written.
"""

from __future__ import annotations

import os
import resource
import struct
from contextlib import suppress
from dataclasses import dataclass

from verl_like_graders.programs import landlock, system_calls
from verl_like_graders.programs.kernel import call

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds what one confined process may use."""

    memory_mib: int  # address space
    cpu_s: int
    file_bytes: int  # size of each file it writes, among them its standard output; not of all together
    num_files: int = 64  # open at once
    num_kept_files: int = 64  # in its folder at once: with ``file_bytes``, what it takes of the disk
    num_threads: int = 128  # at once


def confine(limits: Limits, folder: str, *, landlock_version: int, site_folders: tuple[str, ...] = ()) -> int | None:
    """Give up everything but computing, and reading and writing in ``folder``, for this process and all its threads.

    Args:
        landlock_version: at most the kernel's; 0 uses none.
        site_folders: of packages that can be read, beside the interpreter's own.

    Returns:
        the listener of :mod:`supervision`, without whose answers no thread and no file is made; None where the kernel
        has none, and refuses both.

    Raises:
        OSError: the kernel refuses; nothing unread may then be run.
    """
    _limit_resources(limits)
    _drop_capabilities()
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if landlock_version:
        landlock.restrict(folder, landlock_version, site_folders=site_folders)
    return system_calls.restrict(
        may_write=landlock_version > 0, may_truncate=landlock_version >= landlock.KNOWS_TRUNCATING
    )


def prepare(site_folders: tuple[str, ...]) -> None:
    """Create what every confined process needs, in the process that forks them."""
    landlock.readable(site_folders)
    with suppress(OSError):  # of an architecture without a table: each process says so
        system_calls.prepare()


def die_with_parent(parent_pid: int, signal_number: int) -> None:
    """Get ``signal_number`` when the thread that started this process ends;
    exit now where that has happened already.
    """
    call("prctl", _PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def hide_memory() -> None:
    """Keep this process's memory, environment and files from the user's other processes, and from core dumps.

    Holds for what it forks, and ends where it executes another program.
    """
    call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def _limit_resources(limits: Limits) -> None:
    # No RLIMIT_NPROC: it counts all of the user's processes, and the filter denies new ones anyway.
    wanted = {
        resource.RLIMIT_AS: limits.memory_mib * 2**20,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.num_files,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _drop_capabilities() -> None:
    """Root without capabilities can neither raise a limit nor reach into processes that have some."""
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    call("capset", header, bytes(24))
