"""Print the stacks of all threads on ``kill -USR1``, which does not end a process started with :func:`held_back`.

faulthandler would walk the stacks of other threads while these run and change them, which occasionally causes a
segmentation fault. Here the signal wakes a thread that holds the interpreter lock while it reads them. If another
thread never releases that lock, only py-spy helps: ``py-spy dump --pid PID``, which the process allows.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STDERR = 2
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, -1
HELD_BACK = frozenset({signal.SIGUSR1})


def listen(to: int = STDERR) -> None:
    """Print the stacks of all threads to this file descriptor on SIGUSR1; a signal held back until now prints at once.

    Raises:
        ValueError: called outside the main thread.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    survive()
    _allow_py_spy()
    threading.Thread(target=_print_at_signals, args=(read, to), name="stacks", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)


def survive() -> None:
    """Keep SIGUSR1 from ending this process; the reader of the wakeup descriptor prints the stacks.

    Raises:
        ValueError: called outside the main thread.
    """
    signal.signal(signal.SIGUSR1, _nothing)


@contextmanager
def held_back() -> Iterator[None]:
    """Block SIGUSR1 in processes that this thread starts inside, until they listen: by default it ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def text() -> str:
    """Return the stacks of all threads of this process, the newest call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [f"stacks of process {os.getpid()} at {time.strftime('%Y-%m-%d %H:%M:%S')}"]
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            stack = "".join(traceback.format_stack(frame)).rstrip()
            found.append(f"thread {names.get(ident, '(of a library)')}:\n{stack}")
    return "\n".join(found) + "\n"


def _print_at_signals(read: int, to: int) -> None:
    while signals := os.read(read, 4096):
        if signal.SIGUSR1 in signals:  # signals that arrive together print the stacks once
            print_to(to)


def print_to(to: int = STDERR) -> None:
    """Print the stacks of all threads except this one to the file descriptor."""
    # Not through a Python file, which has a lock: Python aborts if a thread holds the lock of stderr at exit.
    remaining = text().encode(errors="backslashreplace")
    with suppress(OSError):  # the disk is full; a later signal may succeed
        while remaining:
            remaining = remaining[os.write(to, remaining) :]


def _nothing(signum: int, frame: FrameType | None) -> None:
    """Do nothing: Python writes to the pipe when the signal arrives, before this handler runs in the main thread."""


def _allow_py_spy() -> None:
    """Allow any process of this user to trace this one, even if the kernel (Yama) allows only a parent."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)
