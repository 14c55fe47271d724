"""Errors that end a stage early. The module is light to import, because the command line catches them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


class StageTimeout(TimeoutError):
    """A stage exceeded its deadline; the message names the processes still waited for."""


class RunError(RuntimeError):
    """The run cannot continue; the message states the reason and a remedy."""


class FeedbackError(RunError):
    """The measure of the policy's quality cannot be used; the policy itself can.

    Examples: a reward function fails on every response, a batch contains nothing to learn from, a metric is missing.
    """


class WorkerError(RunError):
    """A worker failed; the message contains its rank, node, stage and traceback, or is a sentence for the user."""


class WorkerRefusal(WorkerError):
    """A worker cannot do what is requested. The message is a sentence for the user; a retry would fail the same way."""


class StallError(RunError):
    """A process hangs; the message is the watchdog's verdict."""


class RayLost(RunError):
    """Ray's own servers have ended, are stopped or do not answer; no call that needs them can succeed."""

    num_restarts = 0  # restarts of the run before this error


class LostBlockError(RunError):
    """Rows of a batch were lost from the object store while a stage still needed them."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C arrived while the driver waited for a stage that may be abandoned."""


class OutOfGrace(RunError):
    """The user requested an end, and a stage that changes state did not finish in time."""

    def __init__(self, stage: str) -> None:
        super().__init__(
            f"an end of the run was requested, but its stage {stage!r} took longer than trainer.grace_s allows."
        )


class WorkerFailure(Exception):
    """Carries a worker's error across the process border: location, time, and the traceback as text."""

    def __init__(self, where: str, method: str, traceback_text: str, raised_at: float) -> None:
        super().__init__(where, method, traceback_text, raised_at)
        self.where, self.method, self.traceback_text, self.raised_at = where, method, traceback_text, raised_at

    def __str__(self) -> str:
        return f"{self.where} failed in {self.method}:\n{self.traceback_text}"

    @property
    def last_line(self) -> str:
        """The last line of the traceback: the error itself."""
        return self.traceback_text.rstrip().rpartition("\n")[2]


class Interrupt:
    """Records whether the user requested an end, and how long work in progress may continue."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._work_ends = math.inf

    def set(self, work_s: float = math.inf) -> None:
        """Request an end; stages that change state may take ``work_s`` more seconds."""
        self._work_ends = time.monotonic() + work_s
        self._asked.set()

    def is_set(self) -> bool:
        return self._asked.is_set()

    def clear(self) -> None:
        self._asked.clear()
        self._work_ends = math.inf

    def stop_before(self, stage: str) -> None:
        """Return unless an end was requested.

        Raises:
            Interrupted: an end was requested, so ``stage`` must not begin.
        """
        if self._asked.is_set():
            raise Interrupted(stage)

    def stop_in(self, stage: str) -> None:
        """Return while a stage that changes state may continue.

        Raises:
            OutOfGrace: its time has expired.
        """
        if time.monotonic() >= self._work_ends:
            raise OutOfGrace(stage)


# Errors that a restart may cure: processes and messages were lost, and the request itself was valid.
LOST = (WorkerError, StallError, StageTimeout, LostBlockError)


Report = Callable[[BaseException], bool]


class Announcer:
    """Reports why a command ends as soon as the reason is known, before the shutdown; once per command."""

    def __init__(self) -> None:
        self._reports: list[_ReportOnce] = []
        self._lock = threading.Lock()

    @contextmanager
    def to(self, report: Report) -> Iterator[None]:
        """Pass errors announced inside the context, and the error that ends it, to ``report``; log those outside.

        Args:
            report: returns True if the report is complete; if not, the enclosing context's function is called too.
        """
        once = _ReportOnce(report)
        self._reports.append(once)
        try:
            yield
        except BaseException as error:
            self.announce(error)
            raise
        finally:
            self._reports.remove(once)

    def announce(self, error: BaseException) -> None:
        """Report an error that ends the command, once; errors that follow from it are not reported. Thread-safe."""
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):  # they are reported elsewhere
            return
        if not self._reports:
            log.error("%s", error)
        for once in reversed(self._reports):
            with self._lock:
                is_first, once.is_reported = not once.is_reported, True
            if not is_first or once.report(error):
                return


class _ReportOnce:
    """A report function and whether it was called."""

    def __init__(self, report: Report) -> None:
        self.report, self.is_reported = report, False
