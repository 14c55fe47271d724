"""Signals that end a whole run reach all its processes; only the driver acts on them."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from verl_like.call_threads import BLOCKED_SIGNALS, ENDING_SIGNALS

T = TypeVar("T")
_C = ctypes.CDLL(None)
_HANDLER_BYTES = 256  # for the C library's struct sigaction, which has 152 bytes on Linux


def leave_to_driver() -> None:
    """Keep this worker process running after SIGTERM, SIGHUP or SIGINT; the driver ends it cleanly.

    This installs a handler. Ignored signals, or the signal mask of Ray's servers, would be inherited by child processes
    of a user's function, and only SIGKILL could end those.

    Raises:
        ValueError: called outside the main thread.
    """
    for signum in ENDING_SIGNALS:
        signal.signal(signum, _nothing)
    let_through()


def with_own_handlers(call: Callable[[], T]) -> Callable[[], T]:
    """Return a function that makes the call and then restores this process's signal handlers.

    Ray's library installs a SIGTERM handler below Python's that aborts. The returned function works on any thread,
    whereas Python sets handlers only in the main thread.
    """

    def kept() -> T:
        before = {signum: ctypes.create_string_buffer(_HANDLER_BYTES) for signum in ENDING_SIGNALS}
        for signum, handler in before.items():
            _C.sigaction(int(signum), None, handler)
        try:
            return call()
        finally:
            for signum, handler in before.items():
                _C.sigaction(int(signum), handler, None)

    return kept


def let_through() -> None:
    """Unblock the signals that Ray's servers mask, for this thread and the threads and processes that it starts.

    Before this call, the process must listen for SIGUSR1 (:mod:`verl_like.telemetry.stacks`).
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_SIGNALS)


def _nothing(signum: int, frame: FrameType | None) -> None:
    """Do nothing: the driver receives the signal too."""
