"""A process that a reward function forks does not answer in its parent's place.

``os.fork()`` returns twice, and where the function lets the second process return as well, both would go on to score
and answer what is left. Forking is allowed, as multiprocessing does it; coming back is not.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

# Taken before a reward function could put others in their places.
from os import close, dup2, getpid, kill, open, register_at_fork, write

_NOTE = b"A process that the reward function forked came back from it and was ended. End such a process by os._exit.\n"
_scorer_pid: int | None = None


def watch(answers_fd: int) -> None:
    """Have processes that this one forks lose the descriptor that answers go through; once, in a scorer process."""
    global _scorer_pid
    _scorer_pid = getpid()
    register_at_fork(after_in_child=lambda: _lose(answers_fd))


def end_if_forked() -> None:
    """End this process unless it is the one that watches, however it was forked: a library's fork runs no hook."""
    if _scorer_pid is not None and getpid() != _scorer_pid:
        with suppress(OSError):
            write(2, _NOTE)
        kill(getpid(), signal.SIGKILL)


def _lose(answers_fd: int) -> None:
    # Replaced and not closed: the number would become that of the next file, into which an answer could go.
    nowhere = open(os.devnull, os.O_RDWR)
    dup2(nowhere, answers_fd, inheritable=False)
    close(nowhere)
