"""The parent of one scorer process; when that ends, it ends every process that a reward function has started.

It is the subreaper of its descendants: those that leave the scorer's session and lose their parent become its own
children, and so are found. It starts nothing else and runs no user code. Its life depends on a pipe, so that it does
its work even if the scorer host is killed.

It cannot end processes that others start on request (cron, systemd, a container's daemon), processes with another
user's rights, and one that forks faster than it is killed. If the subreaper itself is killed by ``kill -9``, processes
that had left the scorer's session remain.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from verl_like.reward.framing import encoded
from verl_like.reward.output import OutputFilter
from verl_like.reward.scorer_messages import Ended

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
    """The loop of the process after it has forked the scorer process.

    Args:
        lifeline_fd: reaches end of file once the parent is gone, or wants this process to end.
        answers: socket for the message on how the scorer process ended.
    """

    def __init__(self, scorer_pid: int, *, lifeline_fd: int, answers: socket.socket, output: OutputFilter) -> None:
        self._scorer_pid, self._lifeline_fd, self._answers, self._output = scorer_pid, lifeline_fd, answers, output
        self._code: int | None = None  # of the scorer process, once it has ended
        self._is_dismissed = False
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self._wakeup_fd, write = os.pipe()
        for fd in (self._wakeup_fd, write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})  # the mask is inherited from the host
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._poll = select.poll()
        for fd in (lifeline_fd, output.pipe_fd, self._wakeup_fd):
            self._poll.register(fd, select.POLLIN)

    def keep(self) -> NoReturn:
        """Wait for the end of the scorer process or of the parent, clean up, and exit; never return."""
        self._reap()  # the scorer may have ended before SIGCHLD was handled
        while self._code is None and not self._is_dismissed:
            self._turn(None)
        if self._code is None:  # the kernel has killed it already, unless the scorer had not armed the signal yet
            with suppress(ProcessLookupError):
                os.kill(self._scorer_pid, signal.SIGKILL)
        self._end_descendants()
        for _ in range(MAX_LEFT):
            if not self._output.has_more():
                break
            self._output.read()
        self._output.close()
        output = self._output
        ended = Ended(self._code or 0, output.num_printed, output.num_passed_on, output.last_words())
        with suppress(OSError):  # the parent is gone, or does not read
            self._answers.send(encoded(ended), socket.MSG_DONTWAIT)
        os._exit(0)

    def _turn(self, timeout_s: float | None) -> None:
        for fd, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1e3):
            if fd == self._wakeup_fd:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
                self._reap()
            elif fd == self._lifeline_fd:
                self._is_dismissed = True
                self._poll.unregister(fd)
            elif not self._output.read():
                self._poll.unregister(fd)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid == self._scorer_pid:
                    self._code = os.waitstatus_to_exitcode(status)

    def _end_descendants(self) -> None:
        """End all descendants; the orphans of an ended one become children of this process, found in the next turn."""
        deadline = time.monotonic() + GRACE_S
        asked: set[int] = set()
        beyond: set[int] = set()  # processes of another user
        while left := set(own_children()) - beyond:
            for pid in left:
                is_late = time.monotonic() > deadline
                try:
                    if is_late or pid not in asked:
                        os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
                except ProcessLookupError:
                    pass
                except PermissionError:
                    beyond.add(pid)
            asked |= left
            self._turn(TURN_S)
            self._reap()


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
