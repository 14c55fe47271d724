"""Signals that end a whole run reach all its processes; only the driver acts on them."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from verl_like.single_controller.bounded import ENDING_SIGNALS


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


def take_back() -> None:
    """Install this process's handlers again: Ray's library has one for SIGTERM, beneath Python's, that aborts."""
    if threading.current_thread() is threading.main_thread():
        for signum in ENDING_SIGNALS:
            if (handler := signal.getsignal(signum)) is not None:
                signal.signal(signum, handler)


def let_through() -> None:
    """Let this thread, and the threads and processes that it starts, receive these signals."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)


def _nothing(signum: int, frame: FrameType | None) -> None:
    """The driver has the signal too."""
