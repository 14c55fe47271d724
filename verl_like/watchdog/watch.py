"""Check every process of a run once a second: which one is silent beyond the deadline of its stage.

A process is judged by its heartbeat and by the kernel; it is not contacted. A process that is silent because it waits
for another is not at fault.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_like.telemetry.heartbeat import Reading, read_all
from verl_like.watchdog.deadlines import Deadlines
from verl_like.watchdog.processes import ProcessState, process_state
from verl_like.watchdog.starting import StartingProcesses

STOPPED_S = 8.0  # a process stopped for this long was not stopped just briefly by a user who inspects it
PAUSE_S = 5.0  # a longer time between two checks means that the watchdog itself was suspended
MIN_MOVED_BYTES = 2**20  # read or written since the last check: a process that moves files is not silent
MAX_MEMORY_POINTS = 120
RESTING = ("wait/driver",)  # stages in which silence is expected
STARTING = "start"  # the stage of a process that has no heartbeat yet
BUILDING = (STARTING, "build")  # stages, with all their parts, that ``cluster.start_timeout_s`` bounds


def _is_unnamed(watched: Watched) -> bool:
    """Return whether a process without a heartbeat runs but cannot be named now, as during its ``exec``."""
    if watched.stage != STARTING:
        return False
    state = process_state(watched.pid)
    return state is not None and state.created == watched.created


@dataclass
class Watched:
    """Known state of one process."""

    who: str
    pid: int
    created: float
    reading: Reading
    moved_at: float  # monotonic time of the heartbeat, or later if the process moved files since
    memory: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MAX_MEMORY_POINTS))
    moved_bytes: int = 0
    stopped_since: float | None = None

    @property
    def stage(self) -> str:
        return self.reading.stage

    @property
    def is_resting(self) -> bool:
        return self.stage in RESTING

    @property
    def has_deadline(self) -> bool:
        """Whether silence in its stage may be a fault."""
        return not self.is_resting and self.stage.partition("/")[0] not in BUILDING

    def silent_s(self, now: float) -> float:
        return now - self.moved_at


class Watch:
    """Processes of one run on this node.

    Args:
        folder: heartbeat folder.
        driver: process id of the driver, the ancestor of all others.
        clock: ``time.monotonic``.
    """

    def __init__(
        self, folder: Path, *, driver: int, deadlines: Deadlines, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._driver, self._deadlines, self._clock = folder, driver, deadlines, clock
        self._starting = StartingProcesses(folder)
        self._watched: dict[int, Watched] = {}
        self._checked_at = clock()

    @property
    def processes(self) -> Mapping[int, Watched]:
        """The processes of the last check, by id."""
        return self._watched

    def check(self) -> tuple[dict[int, float], list[Watched]]:
        """Check all processes.

        Returns:
            The deadline of each process that is past it, by process id, whether it is at fault or only waits; and the
            processes that have died since the last check.
        """
        now = self._clock()
        driver = process_state(self._driver)
        is_paused = driver is not None and driver.is_stopped  # Ctrl-Z stops all processes of its terminal
        if is_paused or now - self._checked_at > PAUSE_S:  # or this machine or process was suspended
            for watched in self._watched.values():
                watched.moved_at = now
                watched.stopped_since = None
        self._checked_at = now
        alive: dict[int, Watched] = {}
        readings = read_all(self._folder)
        self._deadlines.learn(readings)
        readings += self._starting_readings(now)
        for reading in readings:
            if (state := process_state(reading.pid)) is not None:
                alive[reading.pid] = self._seen(state, reading, now)
        if any(watched.stage == STARTING and pid not in alive for pid, watched in self._watched.items()):
            for reading in self._starting_readings(now):  # the one that replaces it may have been forked since
                if reading.pid not in alive and (state := process_state(reading.pid)) is not None:
                    alive[reading.pid] = self._seen(state, reading, now)
        names = {watched.who for watched in alive.values()}
        dead = [
            watched
            for pid, watched in self._watched.items()
            if pid not in alive
            and not _is_unnamed(watched)
            and not (watched.stage == STARTING and watched.who in names)  # another has taken over, as a forked one does
        ]
        left = {
            reading.pid: reading for reading in readings
        }  # a heartbeat file outlives its process and names its last stage
        for watched in dead:
            watched.reading = left.get(watched.pid, watched.reading)
        self._watched = alive
        if is_paused:
            return {}, dead
        limits = {pid: self._limit(watched, now) for pid, watched in alive.items()}
        return {pid: limit for pid, limit in limits.items() if limit is not None}, dead

    @property
    def is_starting(self) -> bool:
        """Whether a process of the run is being built, or the driver is in no stage of a step."""
        return any(watched.stage.partition("/")[0] in (*BUILDING, "idle") for watched in self._watched.values())

    def remember_starting(self) -> None:
        """Record processes that have appeared since the last check, so that the death of a short-lived one is seen."""
        now = self._clock()
        for reading in self._starting_readings(now):
            if (state := process_state(reading.pid)) is not None:
                self._watched[reading.pid] = self._seen(state, reading, now)

    def _starting_readings(self, now: float) -> list[Reading]:
        """Return stand-in readings of processes that have no heartbeat yet, so that their end or stop is noticed."""
        found = []
        for pid, who in self._starting.find().items():
            known = self._watched.get(pid)
            since = known.reading.since if known is not None else now
            found.append(Reading(pid, who, STARTING, since, since, 0, "", {}))
        return found

    def _seen(self, state: ProcessState, reading: Reading, now: float) -> Watched:
        known = self._watched.get(state.pid)
        if known is None or known.created != state.created:
            known = Watched(reading.who, state.pid, state.created, reading, moved_at=now)
        if reading.num_moves != known.reading.num_moves:
            known.moved_at = max(known.moved_at, reading.moved_at)
        if state.moved_bytes - known.moved_bytes >= MIN_MOVED_BYTES:
            known.moved_at = now
        if not state.is_stopped:
            known.stopped_since = None
        elif known.stopped_since is None:
            known.stopped_since = now
        known.who, known.reading, known.moved_bytes = reading.who, reading, state.moved_bytes
        # A process that is ending has already freed its memory; the last point must not show that.
        if state.rss_bytes > 0 and (not known.memory or now - known.memory[-1][0] >= 1.0):
            known.memory.append((now, state.rss_bytes))
        return known

    def _limit(self, watched: Watched, now: float) -> float | None:
        """Return the deadline that a process has passed; None if it has passed none."""
        if watched.stopped_since is not None:
            return STOPPED_S if now - watched.stopped_since >= STOPPED_S else None
        if not watched.has_deadline:
            return None
        limit = self._deadlines.of(watched.stage)
        return limit if watched.silent_s(now) > limit else None
