"""Every second of a process is booked to exactly one stage; waiting is a stage too."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from verl_like.telemetry.heartbeat import HEARTBEAT

MAX_SPANS = 2000  # of a process between two looks; older ones give way


@dataclass(frozen=True, slots=True)
class Span:
    """One visit to a stage, in seconds since the epoch."""

    stage: str
    start: float
    end: float


@dataclass(eq=False, slots=True)
class Visit:
    """A stage that was entered, at a time of ``time.perf_counter``, and whom the process waits for in it."""

    stage: str
    start: float
    waits_for: str = ""


class Ledger:
    """Seconds per stage of this process. Stages nest; the inner one gets the time.

    Threads share it: what one of them enters later is the inner one, whichever leaves first.
    """

    def __init__(self, rest: str = "idle") -> None:
        self._seconds: dict[str, float] = {}  # since the start
        self._taken: dict[str, float] = {}
        self._since = time.perf_counter()
        self._epoch = time.time() - self._since
        self._visits = [Visit(rest, self._since)]
        self._spans: deque[Span] = deque(maxlen=MAX_SPANS)
        self._counts: dict[str, float] = {}
        self._peaks: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def current(self) -> str:
        """The stage this process is in now."""
        return self._visits[-1].stage

    @property
    def is_resting(self) -> bool:
        """Whether it is in no stage."""
        return len(self._visits) == 1

    def rest(self, name: str) -> None:
        """What this process does while it is in no stage."""
        with self._lock:
            self._book()
            self._visits[0] = Visit(name, self._since)
            self._show()

    def _book(self) -> None:
        now = time.perf_counter()
        self._seconds[self.current] = self._seconds.get(self.current, 0.0) + now - self._since
        self._since = now

    def enter(self, name: str, waits_for: str = "") -> Visit:
        """Begin a visit, which :meth:`leave` ends."""
        with self._lock:
            self._book()
            visit = Visit(name, self._since, waits_for)
            self._visits.append(visit)
            self._show()
            return visit

    def leave(self, visit: Visit) -> None:
        with self._lock:
            self._book()
            self._visits.remove(visit)
            self._spans.append(Span(visit.stage, self._epoch + visit.start, self._epoch + self._since))
            self._show()

    def _show(self) -> None:
        """Have the heartbeat show the innermost stage that is no waiting; the two clocks are one on Linux."""
        inner = next((v for v in reversed(self._visits) if not v.stage.startswith("wait/")), self._visits[0])
        waits_for = next((v.waits_for for v in reversed(self._visits) if v.waits_for), "")
        HEARTBEAT.enter(inner.stage, inner.start, waits_for)

    def count(self, name: str, number: float) -> None:
        """Add to what is counted under this name, a metric's."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0.0) + number

    def peak(self, name: str, number: float) -> None:
        """The same for what is reported by its largest."""
        with self._lock:
            self._peaks[name] = max(self._peaks.get(name, number), number)

    def take_numbers(self) -> tuple[dict[str, float], dict[str, float]]:
        """Counts and peaks since the last call."""
        with self._lock:
            found = self._counts, self._peaks
            self._counts, self._peaks = {}, {}
            return found

    def take(self) -> dict[str, float]:
        """Seconds per stage since the last call; they add up to the time that passed."""
        with self._lock:
            self._book()
            before, self._taken = self._taken, dict(self._seconds)
            return {name: s for name, now in self._taken.items() if (s := now - before.get(name, 0.0)) > 0}

    def totals(self) -> dict[str, float]:
        """Seconds per stage since the process began."""
        with self._lock:
            self._book()
            return dict(self._seconds)

    def take_spans(self) -> list[Span]:
        """The visits to stages that have ended since the last call, by their ends."""
        with self._lock:
            spans = list(self._spans)
            self._spans.clear()
            return spans


LEDGER = Ledger()


@contextmanager
def stage(name: str, *, waits_for: str = "") -> Iterator[None]:
    """Book the time inside to ``name``.

    Args:
        waits_for: whom the process waits for all that time, as messages name it; the watchdog reads it.
    """
    visit = LEDGER.enter(name, waits_for)
    try:
        yield
    finally:
        LEDGER.leave(visit)


def waiting(kind: str, whom: str) -> AbstractContextManager[None]:
    """Book the time inside to ``wait/kind``, and show the watchdog who is waited for.

    Args:
        kind: "peer" (another rank), "store" (a block of a batch).
        whom: as messages name it ("all ranks, before the first micro-batch").
    """
    return stage(f"wait/{kind}", waits_for=whom)
