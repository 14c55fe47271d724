"""Keep a process that a reward function forks from answering instead of its parent.

``os.fork()`` returns twice. If the function returns in the child too, both processes would continue to score and
answer the remaining samples. Forking is allowed, as multiprocessing does it; returning from the child is not.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

# Imported before a reward function could replace them.
from os import close, dup2, getpid, kill, open, register_at_fork, write

_NOTE = b"A process that the reward function forked came back from it and was ended. End such a process by os._exit.\n"
_scorer_pid: int | None = None


def watch(answers_fd: int) -> None:
    """Make processes that this one forks lose the descriptor for answers; called once, in a scorer process."""
    global _scorer_pid
    _scorer_pid = getpid()
    register_at_fork(after_in_child=lambda: _lose(answers_fd))


def end_if_forked() -> None:
    """End this process unless it called :func:`watch`; this also covers forks by a library, which run no hook."""
    if _scorer_pid is not None and getpid() != _scorer_pid:
        with suppress(OSError):
            write(2, _NOTE)
        kill(getpid(), signal.SIGKILL)


def _lose(answers_fd: int) -> None:
    # Replaced, not closed: the next opened file would get the same number, and an answer could go into it.
    nowhere = open(os.devnull, os.O_RDWR)
    dup2(nowhere, answers_fd, inheritable=False)
    close(nowhere)
