"""Save checkpoints: steps wait only for copies of the state, which are written and published in parallel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

from verl_like.call_threads import CallThreads, Check, NoAnswer
from verl_like.context import current
from verl_like.controller.errors import Announcer, Interrupt, StageTimeout, StallError
from verl_like.controller.verdicts import Verdicts
from verl_like.runs.checkpoint import Checkpoints
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import stage

log = logging.getLogger(__name__)

GIVE_UP_S = 10.0  # for a write that was asked to end; it checks twice a second


class Savable(Protocol):
    """The learners of a role, on all ranks."""

    def save(self, path: str) -> None:
        """Write their state."""

    def begin_save(self, path: str) -> None:
        """Copy their state."""

    def write(self, check: Check) -> None:
        """Write the copy, from another thread; an error that ``check`` raises ends the wait for it."""


class _Writing:
    """A checkpoint that another thread writes.

    Args:
        write: calls its check periodically, and ends with any error that the check raises.
    """

    def __init__(self, step: int, write: Callable[[Check], None]) -> None:
        self.step = step
        self._call = current(CallThreads).begin_with_check(f"the checkpoint of step {step}", partial(self._run, write))

    @property
    def is_over(self) -> bool:
        return self._call.is_over

    def _run(self, write: Callable[[Check], None], check: Check) -> None:
        started = time.monotonic()
        write(check)
        log.info("the checkpoint of step %d was written in %.1f s", self.step, time.monotonic() - started)

    def finish(self, timeout_s: float) -> None:
        """Wait for the end; raise the error of the write."""
        try:
            self._call.result(timeout_s, check=_check)
        except NoAnswer:
            raise StageTimeout(
                f"the checkpoint of step {self.step} was not written within {timeout_s:.0f} s, the limit of "
                "trainer.stage_timeout_s. Its disk hangs or is too slow."
            ) from None

    def give_up(self, wait_s: float) -> None:
        """End the write unless it is being published."""
        self._call.abandon()
        self._call.wait(wait_s)


def _check() -> None:
    """Send a heartbeat while the driver waits, and end the wait if the run ends."""
    current(Heartbeat).tick()
    current(Verdicts).check()
    current(Interrupt).stop_in("checkpoint")


class Saves:
    """The checkpoint writes of a run; on exit of the context none is in progress.

    Args:
        learners: keyed by the name of each one's folder in a checkpoint.
        is_async: whether the driver waits only for the copies, or until a checkpoint is published.
        timeout_s: time limit of one checkpoint.
    """

    def __init__(
        self, checkpoints: Checkpoints, learners: Mapping[str, Savable], *, is_async: bool, timeout_s: float
    ) -> None:
        self._checkpoints, self._is_async, self._timeout_s = checkpoints, is_async, timeout_s
        self._learners = dict(learners)
        self._writing: _Writing | None = None
        self._measured: dict[str, float] = {}  # since it was last taken
        self.step = -1  # of the newest checkpoint in this folder that is known to be intact, or is being written

    def __enter__(self) -> Saves:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait for the write in progress, also after an error, except if a process hangs or the user insists."""
        try:
            if error is None:
                self.finish()
            elif self._writing is not None and not isinstance(error, KeyboardInterrupt | StallError):
                current(Announcer).announce(error)  # the wait may take long
                with _logged_only(self._writing.step):
                    self.finish()
        finally:
            if self._writing is not None:
                self._writing.give_up(0.0 if isinstance(error, KeyboardInterrupt) else GIVE_UP_S)
                self._writing = None

    def save(self, state: dict[str, Any], *, is_best: bool) -> None:
        """Save ``state`` (JSON; contains ``step``) and the learners' state; wait for the previous checkpoint first.

        Raises:
            DiskRefused: the disk is full or not writable; the older checkpoints are unchanged. Errors of the later
                write are raised by :meth:`check`, :meth:`finish` and the next ``save``.
        """
        asked = time.monotonic()
        self.finish()
        begun = time.monotonic()
        with ExitStack() as opened:
            folder = opened.enter_context(self._checkpoints.written(state, is_best=is_best))
            for name, learner in self._learners.items():
                (learner.begin_save if self._is_async else learner.save)(str(folder / name))
            if self._is_async:
                self._writing = _Writing(state["step"], self._writer(opened.pop_all(), begun))
        if not self._is_async:
            self._measured["checkpoint/write_s"] = time.monotonic() - begun
        self._measured["checkpoint/wait_s"] = time.monotonic() - asked
        self.step = state["step"]

    def take_metrics(self) -> dict[str, float]:
        """Return the seconds that the run waited for, and wrote, a checkpoint since the last call.

        Times of events that did not occur are absent.
        """
        return {name: self._measured.pop(name) for name in list(self._measured)}  # the writer may add one meanwhile

    def _writer(self, opened: ExitStack, begun: float) -> Callable[[Callable[[], None]], None]:
        def write(check: Check) -> None:
            with opened:
                for learner in self._learners.values():
                    learner.write(check)
                check()  # an abandoned checkpoint is not published
            self._measured["checkpoint/write_s"] = time.monotonic() - begun

        return write

    def check(self) -> None:
        """Raise the error of the checkpoint in progress, if there is one; do not wait."""
        if self._writing is not None and self._writing.is_over:
            self.finish()

    def finish(self) -> None:
        """Wait until no write is in progress."""
        if (writing := self._writing) is None:
            return
        try:
            with stage("checkpoint", waits_for=f"the checkpoint of step {writing.step}"):
                writing.finish(self._timeout_s)
        finally:
            if writing.is_over:
                self._writing = None


@contextmanager
def _logged_only(step: int) -> Iterator[None]:
    """Log a checkpoint's error instead of raising it, because an earlier error is already ending the run."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (torch's CheckpointException is no Exception)
        log.warning("the checkpoint of step %d is lost: %s", step, error)
