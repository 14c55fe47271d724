"""The restrictions that a process takes on before it runs unreviewed code.

None of them needs privileges, and none can be undone. A system call filter (:mod:`system_calls`) blocks the network,
new processes, signals and access to other processes' memory. :mod:`landlock` restricts files. A kernel without Landlock
(before 5.13) cannot treat folders differently: there, all files can be read and none written.
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
    """The limits of one confined process."""

    memory_mib: int  # address space
    cpu_s: int
    file_bytes: int  # size of each file that it writes, standard output included; not a total
    num_files: int = 64  # open at once
    num_kept_files: int = 64  # in its folder at once; with ``file_bytes`` it bounds the disk usage
    num_threads: int = 128  # at once


def confine(limits: Limits, folder: str, *, landlock_version: int, site_folders: tuple[str, ...] = ()) -> int | None:
    """Restrict this process and all its threads to computing, and to reading and writing in ``folder``.

    Args:
        landlock_version: at most the kernel's; 0 disables Landlock.
        site_folders: package folders that can be read in addition to the interpreter's own.

    Returns:
        the listener for :mod:`supervision`, which must approve every new thread and file; None if the kernel does not
        support listeners, in which case both are refused.

    Raises:
        OSError: the kernel refuses; no unreviewed code may be run then.
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
    with suppress(OSError):  # an architecture without a table; each confined process reports it
        system_calls.prepare()


def die_with_parent(parent_pid: int, signal_number: int) -> None:
    """Request ``signal_number`` at the end of the thread that started this process; exit now if it has ended."""
    call("prctl", _PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def hide_memory() -> None:
    """Hide this process's memory, environment and files from the user's other processes and from core dumps.

    Forked children inherit this; it ends when the process executes another program.
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
    """Drop all capabilities, so that not even root can raise a limit or access processes that have capabilities."""
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    call("capset", header, bytes(24))
