"""Keep a process that a reward function forks from answering instead of its parent.

``os.fork()`` returns twice. If the function returns in the child too, both processes would continue to score and
answer the remaining samples. Forking is allowed, as multiprocessing does it; returning from the child is not.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass

# Imported before a reward function could replace them.
from os import getpid, kill, write

from verl_like.context import current
from verl_like_environments.confined import lose_in_forks

_NOTE = b"A process that the reward function forked returned from it and was ended. End such a process with os._exit.\n"


@dataclass
class _Scorer:
    pid: int | None = None  # of this process, once it watches its forks


def watch(answers_fd: int) -> None:
    """Replace the descriptor for answers in processes that this one forks; called once, in a scorer process."""
    current(_Scorer).pid = getpid()
    lose_in_forks(answers_fd)


def end_if_forked() -> None:
    """End this process unless it called :func:`watch`; this also covers forks by a library, which run no hook."""
    scorer_pid = current(_Scorer).pid
    if scorer_pid is not None and getpid() != scorer_pid:
        with suppress(OSError):
            write(2, _NOTE)
        kill(getpid(), signal.SIGKILL)
