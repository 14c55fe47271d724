"""The stacks of all threads on ``kill -USR1``, which ends no process that starts with :func:`held_back`.

faulthandler would walk the stacks of other threads while these run and change them, which ends a process now and then
by a segmentation fault. Here the signal wakes a thread that holds the interpreter lock as it looks. Where another
thread never gives that lock back, only a look from outside helps: ``py-spy dump --pid PID``, which the process allows.
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
    """Have SIGUSR1 print the stacks of all threads to this file descriptor; one that was held back prints them now.

    Raises:
        ValueError: in another thread than the main one.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    survive()
    _let_py_spy_look()
    threading.Thread(target=_print_at_signals, args=(read, to), name="stacks", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)


def survive() -> None:
    """Keep SIGUSR1 from ending this process; whoever reads the wakeup descriptor prints the stacks.

    Raises:
        ValueError: in another thread than the main one.
    """
    signal.signal(signal.SIGUSR1, _nothing)


@contextmanager
def held_back() -> Iterator[None]:
    """Have SIGUSR1 wait in the processes that this thread starts inside, until they listen: by default it ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def text() -> str:
    """The stacks of all threads of this process, the newest call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [f"stacks of process {os.getpid()} at {time.strftime('%Y-%m-%d %H:%M:%S')}"]
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            stack = "".join(traceback.format_stack(frame)).rstrip()
            found.append(f"thread {names.get(ident, '(of a library)')}:\n{stack}")
    return "\n".join(found) + "\n"


def _print_at_signals(read: int, to: int) -> None:
    while signals := os.read(read, 4096):
        if signal.SIGUSR1 in signals:  # several at once are one question
            print_to(to)


def print_to(to: int = STDERR) -> None:
    """Print the stacks of all threads but this one to the file descriptor."""
    # Not by a Python file, which has a lock: Python aborts if a thread holds that of stderr as it ends.
    said = text().encode(errors="backslashreplace")
    with suppress(OSError):  # a disk that is full; there will be other signals
        while said:
            said = said[os.write(to, said) :]


def _nothing(signum: int, frame: FrameType | None) -> None:
    """Python writes to the pipe as soon as the signal comes; its handler, in the main thread, has nothing to add."""


def _let_py_spy_look() -> None:
    """Allow any process of this user to look, where the kernel (Yama) allows a parent alone."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)
