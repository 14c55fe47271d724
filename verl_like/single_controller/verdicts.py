"""What the watchdog has said of this run's processes, for whoever waits for one of them."""

from __future__ import annotations

import threading
import time

from verl_like.single_controller.errors import StallError, WorkerError

OBITUARY_S = 3.0  # the watchdog looks once a second


class Verdicts:
    """Filled by the watchdog's thread, read by the driver's waits."""

    def __init__(self) -> None:
        self._acts, self._stall, self._unborn = False, "", ""
        self._deaths: dict[str, str] = {}
        self._changed = threading.Condition()

    def expect(self, *, acts: bool) -> None:
        """A run begins: forget what was said of the last one.

        Args:
            acts: whether a stall ends the run (``trainer.on_stall``).
        """
        with self._changed:
            self._acts, self._stall, self._unborn = acts, "", ""
            self._deaths = {}

    def stalled(self, text: str, *, is_certain: bool) -> None:
        """A process stands still."""
        if is_certain and self._acts:
            self._stall = text

    def died(self, who: str, text: str) -> None:
        """A process is gone."""
        with self._changed:
            self._deaths[who] = text
            self._changed.notify_all()

    def unborn(self, who: str) -> None:
        """A process has died before Ray knew it; calls to it would wait for a minute or more."""
        self._unborn = who

    def check(self, *, is_start: bool = False) -> None:
        """Return while nobody stands still.

        Args:
            is_start: whether processes are waited for that are being started.

        Raises:
            StallError: with the verdict.
            WorkerError: one of them has died.
        """
        if self._stall:
            raise StallError(self._stall)
        if is_start and self._unborn:
            known = self.obituary(self._unborn)
            raise WorkerError(f"{self._unborn} died while it was being started{f', {known}' if known else ''}.")

    def obituary(self, who: str) -> str:
        """What was known of a process that has died; empty where the watchdog does not say it in time."""
        deadline = time.monotonic() + OBITUARY_S
        with self._changed:
            while who not in self._deaths and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)
            return self._deaths.get(who, "")


VERDICTS = Verdicts()  # of the run in progress
