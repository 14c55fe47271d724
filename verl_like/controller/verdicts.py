"""What the watchdog has said of this run's processes, for whoever waits for one of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable

from verl_like.controller.errors import StallError, WorkerError

log = logging.getLogger(__name__)
OBITUARY_S = 3.0  # the watchdog checks once a second
MAX_DEATHS, WITHIN_S = 2, 600.0  # of a process that Ray starts again; after more, another start mends nothing


class Verdicts:
    """Filled by the watchdog's thread, read by the driver's waits."""

    def __init__(self) -> None:
        self._acts, self._stall, self._unborn = False, "", ""
        self._deaths: dict[str, str] = {}
        self._restarted: dict[str, str] = {}  # processes that Ray starts again -> what helps where that is no use
        self._died_at: dict[str, deque[float]] = {}  # of these, within WITHIN_S
        self._hopeless = ""
        self._nodes: dict[str, str] = {}  # those that are not as they should be -> how they are
        self._changed = threading.Condition()

    def expect(self, *, acts: bool) -> None:
        """A run begins: forget what was said of the last one.

        Args:
            acts: whether a stall ends the run (``trainer.on_stall``).
        """
        with self._changed:
            self._acts, self._stall, self._unborn, self._hopeless = acts, "", "", ""
            self._deaths, self._restarted, self._died_at, self._nodes = {}, {}, {}, {}

    def restarts(self, names: Iterable[str], *, remedy: str) -> None:
        """Report each death of these processes, which Ray starts again; too many within a while end the run.

        Args:
            remedy: a sentence on what may help then.
        """
        with self._changed:
            self._restarted |= dict.fromkeys(names, remedy)

    def ends(self, names: Iterable[str]) -> None:
        """The run itself ends these processes now: their deaths are no news."""
        with self._changed:
            for who in names:
                self._restarted.pop(who, None)

    def stalled(self, text: str, *, is_certain: bool) -> None:
        """A process stands still."""
        if is_certain and self._acts:
            with self._changed:
                self._stall = f"{text} Besides, {self._of_nodes()}." if self._nodes else text

    def noted(self, text: str) -> None:
        """A warning, which the log has."""

    def died(self, who: str, text: str) -> None:
        """A process is gone."""
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
            log.warning("%s died, %s. Another one is started, which does its work again.", who, text)

    def unborn(self, who: str) -> None:
        """A process has died before Ray knew it; calls to it would wait for a minute or more."""
        self._unborn = who

    def check(self, *, is_start: bool = False) -> None:
        """Return while nobody stands still.

        Args:
            is_start: whether processes are waited for that are being started.

        Raises:
            StallError: with the verdict.
            WorkerError: one of them has died, or does so again and again.
        """
        if self._stall:
            raise StallError(self._stall)
        if self._hopeless:
            raise WorkerError(self._hopeless)
        if is_start and self._unborn:
            known = self.obituary(self._unborn)
            raise WorkerError(f"{self._unborn} died while it was being started{f', {known}' if known else ''}.")

    def node(self, name: str, state: str) -> None:
        """A node is not as it should be, which ``state`` says as the end of a sentence; empty where it is again."""
        with self._changed:
            if state:
                self._nodes[name] = state
            else:
                self._nodes.pop(name, None)

    def _of_nodes(self) -> str:
        return ", ".join(f"the node {name} {state}" for name, state in self._nodes.items())

    def obituary(self, who: str) -> str:
        """What was known of a process that has died; empty where no watchdog says it in time.

        Where none does, it may have been on one of the nodes that are not as they should be, which are named.
        """
        deadline = time.monotonic() + OBITUARY_S
        with self._changed:
            while who not in self._deaths and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if who in self._deaths or not self._nodes:
                return self._deaths.get(who, "")
            return f"unseen by any watchdog; {self._of_nodes()}"


VERDICTS = Verdicts()  # of the run in progress
