"""What can end a stage early. Light to import: the command line catches these."""

from __future__ import annotations

import threading


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
