"""Assign every second of a process to exactly one stage; waiting is a stage too."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from verl_like.context import current
from verl_like.telemetry.heartbeat import Heartbeat

MAX_SPANS = 2000  # of a process between two reports; the oldest are dropped


@dataclass(frozen=True, slots=True)
class Span:
    """One visit to a stage; times in seconds since the epoch."""

    stage: str
    start: float
    end: float


@dataclass(eq=False, slots=True)
class Visit:
    """An entered stage, its start by ``time.perf_counter``, and what the process waits for in it."""

    stage: str
    start: float
    waits_for: str = ""


class Ledger:
    """Seconds per stage of this process. Stages nest; the inner one gets the time.

    Threads share it: the stage entered last is the innermost, whichever thread leaves first.
    """

    def __init__(self, rest: str = "idle") -> None:
        self._seconds: dict[str, float] = {}  # since the process began
        self._taken: dict[str, float] = {}
        self._since = time.perf_counter()
        self._epoch = time.time() - self._since
        self._visits = [Visit(rest, self._since)]
        self._spans: deque[Span] = deque(maxlen=MAX_SPANS)
        self._counts: dict[str, float] = {}
        self._peaks: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def stage(self) -> str:
        """The stage this process is in now."""
        return self._visits[-1].stage

    @property
    def is_resting(self) -> bool:
        """Whether the process is in no stage."""
        return len(self._visits) == 1

    def rest(self, name: str) -> None:
        """Set the stage to which time outside all stages is assigned."""
        with self._lock:
            self._add_seconds()
            self._visits[0] = Visit(name, self._since)
            self._show()

    def _add_seconds(self) -> None:
        """Add the seconds since the last call to the current stage."""
        now = time.perf_counter()
        self._seconds[self.stage] = self._seconds.get(self.stage, 0.0) + now - self._since
        self._since = now

    def enter(self, name: str, waits_for: str = "") -> Visit:
        """Begin a visit, which :meth:`leave` ends."""
        with self._lock:
            self._add_seconds()
            visit = Visit(name, self._since, waits_for)
            self._visits.append(visit)
            self._show()
            return visit

    def leave(self, visit: Visit) -> None:
        with self._lock:
            self._add_seconds()
            self._visits.remove(visit)
            self._spans.append(Span(visit.stage, self._epoch + visit.start, self._epoch + self._since))
            self._show()

    def _show(self) -> None:
        """Show in the heartbeat the innermost stage that is not a wait; both clocks are the same on Linux."""
        inner = next((v for v in reversed(self._visits) if not v.stage.startswith("wait/")), self._visits[0])
        waits_for = next((v.waits_for for v in reversed(self._visits) if v.waits_for), "")
        current(Heartbeat).enter(inner.stage, inner.start, waits_for)

    def count(self, name: str, number: float) -> None:
        """Add ``number`` to the count of a metric."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0.0) + number

    def peak(self, name: str, number: float) -> None:
        """Raise the peak of a metric to ``number`` if that is larger."""
        with self._lock:
            self._peaks[name] = max(self._peaks.get(name, number), number)

    def take_numbers(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the counts and peaks since the last call."""
        with self._lock:
            found = self._counts, self._peaks
            self._counts, self._peaks = {}, {}
            return found

    def take(self) -> dict[str, float]:
        """Return the seconds per stage since the last call; they add up to the time that passed."""
        with self._lock:
            self._add_seconds()
            before, self._taken = self._taken, dict(self._seconds)
            return {name: s for name, now in self._taken.items() if (s := now - before.get(name, 0.0)) > 0}

    def totals(self) -> dict[str, float]:
        """Return the seconds per stage since the process began."""
        with self._lock:
            self._add_seconds()
            return dict(self._seconds)

    def take_spans(self) -> list[Span]:
        """Return the visits that have ended since the last call, sorted by end."""
        with self._lock:
            spans = list(self._spans)
            self._spans.clear()
            return spans


@contextmanager
def stage(name: str, *, waits_for: str = "") -> Iterator[None]:
    """Assign the time inside the context to the stage ``name``.

    Args:
        waits_for: process or event that the process waits for during the stage; shown to the watchdog.
    """
    visit = current(Ledger).enter(name, waits_for)
    try:
        yield
    finally:
        current(Ledger).leave(visit)


def waiting(kind: str, waits_for: str) -> AbstractContextManager[None]:
    """Assign the time inside the context to ``wait/kind``, and show ``waits_for`` to the watchdog.

    Args:
        kind: "peer" (another rank), "store" (a block of a batch).
        waits_for: as messages name it ("all ranks, before the first micro-batch").
    """
    return stage(f"wait/{kind}", waits_for=waits_for)
