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
_HANDLER_BYTES = 256  # of the C library's struct sigaction: 152 on Linux


def leave_to_driver() -> None:
    """Have this process, a worker, go on after SIGTERM, SIGHUP or SIGINT: the driver ends it, in order.

    By a handler, not by ignoring them or by the mask that Ray's servers pass on: both would be inherited by what a
    user's function starts, which could then be ended by SIGKILL alone.

    Raises:
        ValueError: in another thread than the main one.
    """
    for signum in ENDING_SIGNALS:
        signal.signal(signum, _nothing)
    let_through()


def with_own_handlers(call: Callable[[], T]) -> Callable[[], T]:
    """The call, after which this process has the handlers that it had before: Ray's library has one for SIGTERM,
    beneath Python's, that aborts. On any thread, where Python sets handlers in the main thread alone.
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
    """Let this thread, and the threads and processes that it starts, receive what the mask of Ray's servers blocks.

    This process must listen for SIGUSR1 (:mod:`verl_like.telemetry.stacks`) by then.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_SIGNALS)


def _nothing(signum: int, frame: FrameType | None) -> None:
    """The driver has the signal too."""
