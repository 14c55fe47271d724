"""The watchdog's findings on this run's processes, for code that waits for one of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable

from verl_like.controller.errors import StallError, WorkerError

log = logging.getLogger(__name__)
DEATH_REPORT_S = 3.0  # the watchdog checks once a second
MAX_DEATHS, WITHIN_S = 2, 600.0  # of a process that Ray restarts; after more deaths, another restart does not help


class Verdicts:
    """Holds findings that the watchdog's thread writes and the driver's waits read."""

    def __init__(self) -> None:
        self._acts, self._stall, self._dead_at_start = False, "", ""
        self._deaths: dict[str, str] = {}
        self._restarted: dict[str, str] = {}  # processes that Ray restarts -> remedy if restarts do not help
        self._died_at: dict[str, deque[float]] = {}  # times of the deaths of these processes within WITHIN_S
        self._hopeless = ""
        self._nodes: dict[str, str] = {}  # nodes with a problem -> description of the problem
        self._changed = threading.Condition()

    def expect(self, *, acts: bool) -> None:
        """Forget the findings on the last run, because a new run begins.

        Args:
            acts: whether a stall ends the run (``trainer.on_stall``).
        """
        with self._changed:
            self._acts, self._stall, self._dead_at_start, self._hopeless = acts, "", "", ""
            self._deaths, self._restarted, self._died_at, self._nodes = {}, {}, {}, {}

    def expect_restarts(self, names: Iterable[str], *, remedy: str) -> None:
        """Log each death of these processes, which Ray restarts; too many deaths in a short time end the run.

        Args:
            remedy: a sentence on what may help in that case.
        """
        with self._changed:
            self._restarted |= dict.fromkeys(names, remedy)

    def expect_ends(self, names: Iterable[str]) -> None:
        """Ignore the deaths of these processes from now on: the run itself ends them."""
        with self._changed:
            for who in names:
                self._restarted.pop(who, None)

    def stalled(self, text: str, *, is_certain: bool) -> None:
        """Record that a process hangs."""
        if is_certain and self._acts:
            with self._changed:
                self._stall = f"{text} In addition, {self._of_nodes()}." if self._nodes else text

    def noted(self, text: str) -> None:
        """Ignore a warning, which is already in the log."""

    def died(self, who: str, text: str) -> None:
        """Record that a process has died."""
        with self._changed:
            self._deaths[who] = text
            if who in self._restarted:
                self._count_restart(who, text)
            self._changed.notify_all()

    def _count_restart(self, who: str, text: str) -> None:
        now = time.monotonic()
        died_at = self._died_at.setdefault(who, deque(maxlen=MAX_DEATHS + 1))
        died_at.append(now)
        if len(died_at) > MAX_DEATHS and now - died_at[0] <= WITHIN_S:
            self._hopeless = (
                f"{who} has died {len(died_at)} times within {now - died_at[0]:.0f} s, the last time {text}. "
                f"{self._restarted[who]}"
            )
        else:
            log.warning("%s died, %s. Another one is started and repeats its work.", who, text)

    def died_at_start(self, who: str) -> None:
        """Record that a process died before Ray registered it; calls to it would wait for a minute or more."""
        self._dead_at_start = who

    def check(self, *, is_start: bool = False) -> None:
        """Return if no process hangs.

        Args:
            is_start: whether the caller waits for processes that are being started.

        Raises:
            StallError: a process hangs; the message is the verdict.
            WorkerError: a process died during its start, or has died too often.
        """
        if self._stall:
            raise StallError(self._stall)
        if self._hopeless:
            raise WorkerError(self._hopeless)
        if is_start and self._dead_at_start:
            known = self.death_report(self._dead_at_start)
            raise WorkerError(f"{self._dead_at_start} died while it was being started{f', {known}' if known else ''}.")

    def node(self, name: str, state: str) -> None:
        """Record a node's problem, phrased as the end of a sentence; an empty ``state`` clears it."""
        with self._changed:
            if state:
                self._nodes[name] = state
            else:
                self._nodes.pop(name, None)

    def _of_nodes(self) -> str:
        return ", ".join(f"the node {name} {state}" for name, state in self._nodes.items())

    def death_report(self, who: str) -> str:
        """Return the watchdog's description of a process's death, or "" if none arrives in time.

        If none arrives and some nodes have problems, the result names those nodes: the process may have been on one of
        them.
        """
        deadline = time.monotonic() + DEATH_REPORT_S
        with self._changed:
            while who not in self._deaths and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if who in self._deaths or not self._nodes:
                return self._deaths.get(who, "")
            return f"unseen by any watchdog; {self._of_nodes()}"
