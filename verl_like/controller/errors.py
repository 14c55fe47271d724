"""What can end a stage early. Light to import: the command line catches these."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


class StageTimeout(TimeoutError):
    """A stage outlasted its deadline; the message names who was waited for."""


class RunError(RuntimeError):
    """The run cannot go on; the message says why and what would help."""


class FeedbackError(RunError):
    """What tells how good the policy is cannot be used; the policy can.

    A reward fails on every response, a batch leaves nothing to learn from, a metric is not there.
    """


class WorkerError(RunError):
    """A worker failed; the message holds rank, node, stage and its traceback."""


class WorkerRefusal(WorkerError):
    """A worker cannot do what is asked; the message is a sentence for the user, and another try would fail alike."""


class StallError(RunError):
    """A process stands still; the message is the watchdog's verdict."""


class RayLost(RunError):
    """Ray's own servers have ended, are stopped or do not answer: nothing that needs them can be done any longer."""

    num_restarts = 0  # that the run had had before


class LostBlockError(RunError):
    """Rows of a batch left the object store while a stage still needed them."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C arrived while the driver waited in a stage that may be abandoned."""


class OutOfGrace(RunError):
    """The user asked for an end, and a stage that changes something did not reach its own in time."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"the run was to end, but its stage {stage!r} took longer than trainer.grace_s allows.")


class WorkerFailure(Exception):
    """What a worker raises across the process border: where, when, and the traceback as text."""

    def __init__(self, where: str, method: str, traceback_text: str, raised_at: float) -> None:
        super().__init__(where, method, traceback_text, raised_at)
        self.where, self.method, self.traceback_text, self.raised_at = where, method, traceback_text, raised_at

    def __str__(self) -> str:
        return f"{self.where} failed in {self.method}:\n{self.traceback_text}"

    @property
    def last_line(self) -> str:
        """What was raised, without the way there."""
        return self.traceback_text.rstrip().rpartition("\n")[2]


class Interrupt:
    """Whether the user asked for an end, and for how long what is under way may go on."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._work_ends = math.inf

    def set(self, work_s: float = math.inf) -> None:
        """Ask for an end; stages that change something may take ``work_s`` seconds more."""
        self._work_ends = time.monotonic() + work_s
        self._asked.set()

    def is_set(self) -> bool:
        return self._asked.is_set()

    def clear(self) -> None:
        self._asked.clear()
        self._work_ends = math.inf

    def stop_before(self, stage: str) -> None:
        """Return, unless an end was asked for.

        Raises:
            Interrupted: it was, so ``stage`` is not begun.
        """
        if self._asked.is_set():
            raise Interrupted(stage)

    def stop_in(self, stage: str) -> None:
        """Return while a stage that changes something may go on.

        Raises:
            OutOfGrace: its time is up.
        """
        if time.monotonic() >= self._work_ends:
            raise OutOfGrace(stage)


INTERRUPT = Interrupt()  # set by the signal handler of the command line, and in workers when the driver says so

# What another start may do away with: processes and messages that are gone, not what was asked of them.
LOST = (WorkerError, StallError, StageTimeout, LostBlockError)


Tell = Callable[[BaseException], bool]


class Announcer:
    """Tells why a command ends as soon as that is known, which is before everything is shut down; once a command."""

    def __init__(self) -> None:
        self._tellers: list[_Teller] = []
        self._lock = threading.Lock()

    @contextmanager
    def to(self, tell: Tell) -> Iterator[None]:
        """What is announced inside goes to ``tell``, and what ends the inside does; outside, the log has it.

        Args:
            tell: returns whether that was all there is to say; else the one around it is asked.
        """
        teller = _Teller(tell)
        self._tellers.append(teller)
        try:
            yield
        except BaseException as error:
            self(error)
            raise
        finally:
            self._tellers.remove(teller)

    def __call__(self, error: BaseException) -> None:
        """Tell of an error that ends the command; what follows from it is not told again. From any thread."""
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):  # which tell of themselves
            return
        if not self._tellers:
            log.error("%s", error)
        for teller in reversed(self._tellers):
            with self._lock:
                is_first, teller.has_told = not teller.has_told, True
            if not is_first or teller.tell(error):
                return


class _Teller:
    def __init__(self, tell: Tell) -> None:
        self.tell, self.has_told = tell, False


ANNOUNCE = Announcer()
