"""Limits on reading what somebody else wrote, which may be made to have no end."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

LONGEST_S = 20.0
MOST_MEMORY_GIB = 2
_AGAIN_S = 0.5  # an error raised in a finaliser is swallowed by Python: raise it once more


class _TooLong(BaseException):
    """The time is up. No Exception: libraries catch those and go on."""


@contextmanager
def bounded(what: str, *, remedy: str, longest_s: float = LONGEST_S) -> Iterator[None]:
    """Refuse what takes too long, too much memory or too deep a recursion to read.

    Outside of the main thread, which alone gets signals, there is no limit on time.

    Raises:
        ValueError: ``what`` took more.
    """
    try:
        with _deadline(longest_s), _memory():
            yield
    except _TooLong:
        raise ValueError(f"{what} takes more than {longest_s:g} s to read. {remedy}") from None
    except MemoryError:
        raise ValueError(f"{what} takes more than {MOST_MEMORY_GIB} GiB of memory to read. {remedy}") from None
    except RecursionError:
        raise ValueError(f"{what} is nested deeper than can be read. {remedy}") from None


@contextmanager
def _deadline(longest_s: float) -> Iterator[None]:
    is_free = threading.current_thread() is threading.main_thread() and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    if not is_free:  # another thread, or within another deadline
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, longest_s, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_MEMORY_GIB * 2**30
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
