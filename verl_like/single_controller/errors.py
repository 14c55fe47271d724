"""What can end a stage early. Light to import: the command line catches these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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


class RayLost(RunError):
    """Ray's own servers have ended, are stopped or do not answer: nothing that needs them can be done any longer."""


class LostBlockError(RunError):
    """Rows of a batch left the object store while a stage still needed them."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C arrived while the driver waited in a stage that may be abandoned."""


class WorkerFailure(Exception):
    """What a worker raises across the process border: where, when, and the traceback as text."""

    def __init__(self, where: str, method: str, traceback_text: str, raised_at: float) -> None:
        super().__init__(where, method, traceback_text, raised_at)
        self.where, self.method, self.traceback_text, self.raised_at = where, method, traceback_text, raised_at

    def __str__(self) -> str:
        return f"{self.where} failed in {self.method}:\n{self.traceback_text}"


INTERRUPT = threading.Event()  # set by the CLI's signal handler


class Announcer:
    """Tells why a command ends as soon as that is known, which is before everything is shut down; once a command."""

    def __init__(self) -> None:
        self._tell: Callable[[BaseException], None] | None = None
        self._lock, self._told = threading.Lock(), False

    @contextmanager
    def to(self, tell: Callable[[BaseException], None]) -> Iterator[None]:
        """What is announced inside goes to ``tell``, and what ends the inside does; outside, nobody is told."""
        before = self._tell
        self._tell, self._told = tell, False
        try:
            yield
        except BaseException as error:
            self(error)
            raise
        finally:
            self._tell = before

    def __call__(self, error: BaseException) -> None:
        """Tell of an error that ends the command; what follows from it is not told again. From any thread."""
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):  # which tell of themselves
            return
        with self._lock:
            is_first, self._told = not self._told, True
        if is_first and self._tell is not None:
            self._tell(error)


ANNOUNCE = Announcer()
