"""The parent of one process that runs users' code; when that ends, it ends every process that the code has started.

It is the subreaper of its descendants: those that leave the session of the process and lose their parent become its
own children, and so are found. It starts nothing else and runs no user code. It ends when a pipe closes, so that it
does its work even if the process that started it is killed. Scorer processes (``verl_like.reward.scorer_main``) and
nurseries (:mod:`verl_like_environments.nursery`) each have one.

It cannot end processes that others start on request (cron, systemd, a container's daemon), processes with another
user's rights, and one that forks faster than it is killed. If the subreaper itself is killed by ``kill -9``, processes
that had left the session remain.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import select
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from verl_like_environments.output import OutputFilter

PR_SET_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
GRACE_S = 2.0  # between SIGTERM and SIGKILL: a process may have a folder to remove
TURN_S = 0.05
MAX_LEFT = 64  # chunks read from the pipe at the end; it holds fewer
# None of these is meant for the subreaper, and each would end it before its work is done.
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Subreaper:
    """The loop of the process after it has forked the process that runs the users' code.

    Args:
        pid: of that process.
        lifeline_fd: reaches end of file once the parent is gone, or wants this process to end.
        report: sends the parent the exit code of that process, 0 if it is not known; the filter has counted its output.
    """

    def __init__(self, pid: int, *, lifeline_fd: int, output: OutputFilter, report: Callable[[int], None]) -> None:
        self._pid, self._lifeline_fd, self._output, self._report = pid, lifeline_fd, output, report
        self._code: int | None = None  # of the process, once it has ended
        self._must_end = False
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self._wakeup_fd = wake_at_sigchld()
        self._continue_fd = _continue_with_pipe(lifeline_fd)
        self._poll = select.poll()
        for fd in (lifeline_fd, output.pipe_fd, self._wakeup_fd):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> NoReturn:
        """Wait for the end of the process or of the parent, clean up, and exit; never return."""
        self._reap()  # it may have ended before SIGCHLD was handled
        while self._code is None and not self._must_end:
            self._turn(None)
        if self._code is None:  # the kernel has killed it already, unless it had not armed the signal yet
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._end_descendants()
        for _ in range(MAX_LEFT):
            if not self._output.has_more():
                break
            self._output.read()
        self._output.close()
        with suppress(OSError):  # the parent is gone, or does not read
            self._report(self._code or 0)
        os._exit(0)

    def _turn(self, timeout_s: float | None) -> None:
        for fd, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1e3):
            if fd == self._wakeup_fd:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
                self._reap()
            elif fd == self._lifeline_fd:
                self._must_end = True
                self._poll.unregister(fd)
            elif not self._output.read():
                self._poll.unregister(fd)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid == self._pid:
                    self._code = os.waitstatus_to_exitcode(status)

    def _end_descendants(self) -> None:
        """End all descendants; the orphans of an ended one become children of this process, found in the next turn."""
        ending = Termination(deadline=time.monotonic() + GRACE_S)
        while ending.go_on(own_children()):
            self._turn(TURN_S)
            self._reap()


class Termination:
    """Ends processes: SIGTERM first, and SIGKILL after ``GRACE_S``.

    Args:
        deadline: after which a process gets SIGKILL at once, so that one that forks cannot prolong the end.
    """

    def __init__(self, *, deadline: float = math.inf) -> None:
        self._deadline = deadline
        self._kill_at: dict[int, float] = {}  # of the processes that have got SIGTERM
        self._not_permitted: set[int] = set()  # processes of another user

    def go_on(self, pids: Collection[int]) -> bool:
        """Send the signals that are due to these children, and return whether one of them can still be ended."""
        now = time.monotonic()
        self._kill_at = {pid: kill_at for pid, kill_at in self._kill_at.items() if pid in pids}
        self._not_permitted &= set(pids)
        left = [pid for pid in pids if pid not in self._not_permitted]
        for pid in left:
            is_new = pid not in self._kill_at
            kill_at = min(self._kill_at.setdefault(pid, now + GRACE_S), self._deadline)
            try:
                if now >= kill_at:
                    os.kill(pid, signal.SIGKILL)
                elif is_new:
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # a stopped process would not notice
            except ProcessLookupError:
                pass
            except PermissionError:
                self._not_permitted.add(pid)
        return bool(left)


def wake_at_sigchld() -> int:
    """Return a descriptor that becomes readable at every SIGCHLD; called by a main thread."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})  # the mask is inherited
    return read


def _continue_with_pipe(fd: int) -> int:
    """Let the kernel continue this process, if it was stopped, when the other end of a pipe is closed.

    Return a descriptor of the pipe that belongs to this process alone, so that its signal does too; -1 without /proc.
    """
    try:
        own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return -1
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    return own


def own_children() -> list[int]:
    """Return the ids of all children of this process, including zombies."""
    try:
        found = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    except FileNotFoundError:
        found = []
    return [int(pid) for pids in found for pid in pids] if found else children_in(Path("/proc"))


def children_in(proc: Path) -> list[int]:
    """Return the same from the list of all processes, for kernels without CONFIG_PROC_CHILDREN."""
    found = []
    for path in proc.glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may contain anything; after it come the state and the parent.
            if int(path.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found
