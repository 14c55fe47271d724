"""Every second of a process is booked to exactly one stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Ledger:
    """Seconds per stage of this process. Stages nest; the inner one gets the time."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stack: list[str] = ["idle"]
        self._since = time.perf_counter()
        self._lock = threading.Lock()

    @property
    def current(self) -> str:
        """The stage this process is in now."""
        return self._stack[-1]

    def _book(self) -> None:
        now = time.perf_counter()
        self._seconds[self.current] = self._seconds.get(self.current, 0.0) + now - self._since
        self._since = now

    def enter(self, name: str) -> None:
        with self._lock:
            self._book()
            self._stack.append(name)

    def leave(self) -> None:
        with self._lock:
            self._book()
            self._stack.pop()

    def take(self) -> dict[str, float]:
        """Seconds per stage since the last call; they add up to the time that passed."""
        with self._lock:
            self._book()
            seconds, self._seconds = self._seconds, {}
            return seconds


LEDGER = Ledger()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Book the time inside to ``name``."""
    LEDGER.enter(name)
    try:
        yield
    finally:
        LEDGER.leave()
