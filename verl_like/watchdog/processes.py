"""What the kernel knows of a process, whatever that process is busy with."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process as it is now.

    Args:
        name: of its program.
        created: when it was started; with the id, that tells processes apart for ever.
        is_stopped: by a signal (SIGSTOP, SIGTSTP), not by a debugger.
        moved_bytes: read and written so far, of files and pipes; what it sends and receives does not count.
    """

    pid: int
    name: str
    created: float
    is_stopped: bool
    rss_bytes: int
    moved_bytes: int


def process_state(pid: int) -> ProcessState | None:
    """The state of a process; None where it is gone, or only its parent does not know yet."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            status = process.status()
            if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            return ProcessState(
                pid=pid,
                name=process.name(),
                created=process.create_time(),
                is_stopped=status == psutil.STATUS_STOPPED,
                rss_bytes=process.memory_info().rss,
                moved_bytes=_moved_bytes(process),
            )
    except psutil.Error:
        return None


def _moved_bytes(process: psutil.Process) -> int:
    try:
        counters = process.io_counters()
    except psutil.AccessDenied:  # another user's
        return 0
    return int(counters.read_chars + counters.write_chars)


def children(pid: int, *, recursive: bool = False) -> list[psutil.Process]:
    """The processes below this one."""
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.Error:
        return []


def cores_used(pid: int, seconds: float) -> float:
    """How many processor cores a process uses; takes so many seconds to find out."""
    try:
        return float(psutil.Process(pid).cpu_percent(seconds)) / 100
    except psutil.Error:
        return 0.0
