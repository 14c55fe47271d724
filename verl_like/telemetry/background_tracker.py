"""Send reports to a tracking service in the background: no step waits for it, and no failure of it ends the run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue

from verl_like.call_threads import CallThreads
from verl_like.context import current
from verl_like.telemetry.sample_rows import SampleRow
from verl_like.telemetry.trackers import KeepsFiles, ShowsSamples, Tracker

log = logging.getLogger(__name__)

OPEN_S = 30.0  # longest wait for a service at the start; it may answer later
CLOSE_S = 15.0  # longest wait at the end; within the grace period of a run that is stopped
MAX_WAITING = 1000  # reports queued for a service; further ones are dropped


class BackgroundTracker:
    """Makes a tracker's calls one after the other on a separate thread.

    Reports that a service does not take are counted: the first failure is logged at once, the number at the end. The
    run's own files contain every metric that wandb or another service misses.

    Args:
        name: of the service, for messages.
        opened: connects to the service; called on the thread, because some services identify a run by its thread.
        open_s: longest wait for the connection.
        close_s: longest wait for the remaining reports at the end.
    """

    def __init__(
        self, name: str, opened: Callable[[], Tracker], *, open_s: float = OPEN_S, close_s: float = CLOSE_S
    ) -> None:
        self._name, self._opened, self._close_s = name, opened, close_s
        self._reports: Queue[Callable[[Tracker], None] | None] = Queue(MAX_WAITING)
        self._has_tried, self._is_closed = threading.Event(), False
        self._num_refused = self._num_dropped = 0
        self._work = current(CallThreads).begin(f"tracker {name}", self._send)
        if not self._has_tried.wait(open_s):
            log.warning("%s has not answered within %g s; the run continues, and its metrics are queued", name, open_s)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        report = dict(metrics)
        self._put(lambda tracker: tracker.log(step, report))

    def log_samples(self, step: int, of: str, rows: Sequence[SampleRow]) -> None:
        def show(tracker: Tracker) -> None:
            if isinstance(tracker, ShowsSamples):
                tracker.log_samples(step, of, rows)

        self._put(show)

    def keep_file(self, path: Path) -> None:
        def keep(tracker: Tracker) -> None:
            if isinstance(tracker, KeepsFiles):
                tracker.keep_file(path)

        self._put(keep)

    def truncate_after(self, step: int) -> None:
        self._put(lambda tracker: tracker.truncate_after(step))

    def close(self) -> None:
        """Wait until the service has taken all reports, up to the limit; then abandon it."""
        self._is_closed = True
        with suppress(Full):  # the thread is not blocked on a full queue, and sees _is_closed
            self._reports.put_nowait(None)
        if not self._work.wait(self._close_s):
            self._work.abandon()
            log.warning(
                "%s has not taken %d reports within %g s of the end; the run's files contain them",
                self._name,
                self._reports.qsize() + self._num_dropped + self._num_refused,
                self._close_s,
            )
        elif self._num_refused or self._num_dropped:
            num_lost = self._num_refused + self._num_dropped
            log.warning("%s did not take %d reports; the run's files contain them", self._name, num_lost)

    def _put(self, report: Callable[[Tracker], None]) -> None:
        try:
            self._reports.put_nowait(report)
        except Full:
            if not self._num_dropped:
                log.warning("%s has %d reports queued; further ones are dropped", self._name, MAX_WAITING)
            self._num_dropped += 1

    def _send(self) -> None:
        tracker: Tracker | None = None
        try:
            tracker = self._opened()
        except BaseException as error:  # noqa: BLE001 (some services raise SystemExit)
            self._warn(error, "could not be opened")
        self._has_tried.set()
        while (report := self._next()) is not None:
            if tracker is None:
                self._num_refused += 1
                continue
            try:
                report(tracker)
            except BaseException as error:  # noqa: BLE001
                if not self._num_refused:
                    self._warn(error, "refused a report")
                self._num_refused += 1
        if tracker is not None:
            try:
                tracker.close()
            except BaseException as error:  # noqa: BLE001
                self._warn(error, "could not be closed")

    def _next(self) -> Callable[[Tracker], None] | None:
        """Wait for the next report; return None at the end."""
        try:
            return self._reports.get_nowait() if self._is_closed else self._reports.get()
        except Empty:
            return None

    def _warn(self, error: BaseException, what: str) -> None:
        log.warning("%s %s, and the run continues: %s: %s", self._name, what, type(error).__name__, error)
        log.debug("details", exc_info=error)
