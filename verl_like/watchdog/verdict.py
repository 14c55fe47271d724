"""Decide which of several silent processes is at fault, and word the report."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from verl_like.watchdog.stack_dumps import ThreadStack
from verl_like.watchdog.watch import Watched

Stacks = Mapping[int, "list[ThreadStack] | str"]
AT_REST = ("CallThreads._work (", "_print_at_signals (")  # our threads that wait for work
OUR_FOLDERS = ("verl_like/", "verl_like_graders/")
MAX_CALLS = 8  # calls of the silent process's stack that are logged


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a check by the watchdog.

    Args:
        silent: the processes that hang without waiting for another.
        waiting: processes that wait for them or for one another.
    """

    silent: tuple[Watched, ...]
    waiting: tuple[Watched, ...]


def verdict_on(limits: Collection[int], processes: Mapping[int, Watched], stacks: Stacks) -> Verdict:
    """Separate the processes that hang from those that wait.

    If all processes past their deadlines wait, the one that they wait for may still be within its own deadline. The
    working process that has been silent longest is taken.
    """
    waiting = {pid for pid, watched in processes.items() if _waits(watched, stacks.get(pid, ""))}
    silent = [processes[pid] for pid in limits if pid not in waiting]
    if not silent:
        at_work = [w for pid, w in processes.items() if w.has_deadline and pid not in waiting]
        silent = sorted(at_work, key=lambda watched: watched.moved_at)[:1]
    reported = {watched.pid for watched in silent}
    return Verdict(tuple(silent), tuple(processes[pid] for pid in sorted(waiting) if pid not in reported))


def _waits(watched: Watched, stacks: list[ThreadStack] | str) -> bool:
    if watched.is_resting or watched.stopped_since is not None:
        return False
    return bool(watched.reading.waits_for) or any(s.waits_for_peers for s in stacks if isinstance(s, ThreadStack))


def sentence(verdict: Verdict, limits: Mapping[int, float], cores: Mapping[int, float], now: float) -> str:
    """Return the log message: one paragraph.

    Args:
        cores: CPU cores in use, by process id.
    """
    if not verdict.silent:
        waiting = "; ".join(_waiting(w) for w in verdict.waiting)
        return f"the run hangs, because every process waits for another one: {waiting}."
    parts = [_silent(w, limits.get(w.pid), cores.get(w.pid, 0.0), now) for w in verdict.silent]
    if verdict.waiting:
        parts.append(f"Waiting meanwhile: {'; '.join(_waiting(w) for w in verdict.waiting)}.")
    return " ".join(parts)


def _silent(watched: Watched, limit: float | None, cores: float, now: float) -> str:
    process = f"{watched.who} (pid {watched.pid} on {socket.gethostname()})"
    if watched.stopped_since is not None:
        seconds = now - watched.stopped_since
        where = f"for {seconds:.0f} s in stage {watched.stage!r}"
        return f"{process} is stopped by a signal (SIGSTOP) {where}; kill -CONT {watched.pid} resumes it."
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - (now - watched.reading.since)))
    busy = f"uses {cores:.1f} cores" if cores >= 0.1 else "uses no processor time"
    allowed = f", {limit:.0f} s is the deadline" if limit is not None else ""
    seconds = watched.silent_s(now)
    return (
        f"{process} hangs in stage {watched.stage!r}, entered at {since}: silent for {seconds:.0f} s{allowed}; "
        f"it {busy}{_doing(watched)}."
    )


def _doing(watched: Watched) -> str:
    return f" and waits for {watched.reading.waits_for}" if watched.reading.waits_for else ""


def _waiting(watched: Watched) -> str:
    awaited = watched.reading.waits_for
    return f"{watched.who} in {watched.stage!r} for {awaited or 'other ranks (a collective)'}"


def excerpt(stacks: list[ThreadStack] | str) -> str:
    """Return the stacks of threads that run our code, shortened for the log; all threads if none does."""
    if isinstance(stacks, str):
        return stacks
    busy = [stack for stack in stacks if not stack.calls or not stack.calls[0].startswith(AT_REST)]
    ours = [stack for stack in busy if any(folder in call for call in stack.calls for folder in OUR_FOLDERS)]
    lines = []
    for stack in ours or stacks:
        lines += [f"  thread {stack.name}", *(f"    {call}" for call in stack.calls[:MAX_CALLS])]
    return "\n".join(lines)
