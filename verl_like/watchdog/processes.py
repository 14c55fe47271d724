"""State of processes as the kernel reports it, without their cooperation."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class ProcessState:
    """Current state of a process.

    Args:
        name: of its program.
        created: start time; together with the id, it identifies a process uniquely.
        is_stopped: by a signal (SIGSTOP, SIGTSTP), not by a debugger.
        moved_bytes: bytes read and written so far through files and pipes; network traffic does not count.
    """

    pid: int
    name: str
    created: float
    is_stopped: bool
    rss_bytes: int
    moved_bytes: int


def process_state(pid: int) -> ProcessState | None:
    """Return the state of a process; None if it is gone or a zombie."""
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
    except psutil.AccessDenied:  # another user's process
        return 0
    return int(counters.read_chars + counters.write_chars)


def children(pid: int, *, recursive: bool = False) -> list[psutil.Process]:
    """Return the child processes, or all descendants if ``recursive``; empty if the process is gone."""
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.Error:
        return []


def cores_used(pid: int, seconds: float) -> float:
    """Return how many CPU cores a process uses, measured over ``seconds``."""
    try:
        return float(psutil.Process(pid).cpu_percent(seconds)) / 100
    except psutil.Error:
        return 0.0
