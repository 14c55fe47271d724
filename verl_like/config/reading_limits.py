"""Limits on time, memory and depth for reading files that may be malicious."""

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
_AGAIN_S = 0.5  # Python swallows an error raised in a finaliser, so it is raised repeatedly


class _TooLong(BaseException):
    """The time limit is exceeded. Not an ``Exception``, because libraries catch those and continue."""


@contextmanager
def bounded(what: str, *, remedy: str, longest_s: float = LONGEST_S) -> Iterator[None]:
    """Limit the time, memory and recursion depth of the block.

    There is no time limit outside the main thread, because only the main thread receives signals.

    Raises:
        ValueError: reading ``what`` exceeded a limit.
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
