"""A process that scores samples and that can be killed.

A thread that holds the interpreter lock cannot be stopped; a process can. The process runs
:mod:`verl_like.reward.scorer_main` under a subreaper (:mod:`verl_like_environments.subreaper`).
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

from verl_like.reward.environment import scorer_environment
from verl_like.reward.framing import AnswerReader, send_request
from verl_like.reward.output import OutputBudget
from verl_like.reward.scorer_launch import launch
from verl_like.reward.scorer_messages import (
    Answer,
    Ended,
    Gone,
    GroundTruthReading,
    GroundTruthsRead,
    Intrusion,
    Message,
    Outcome,
    ReadGroundTruths,
    Ready,
    RowGroundTruth,
    Sample,
    Task,
    Unusable,
)

START_TIMEOUT_S = 60.0  # covers the imports of a user's file
PIECE_TIMEOUT_S = 5.0  # until the next message while several ground truths are read
MIN_GATHERED = 32  # answers still to come, if they are read together: the pause would delay the end of a small piece
CANCEL_GRACE_S = 1.0  # an async call is cancelled by its own process first
ENDING_TIMEOUT_S = 2.0  # for a subreaper to report how its scorer process ended
MAX_CHARS = 1500  # of a process's last output, in a message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loss:
    """Why samples were left without an answer, as the outcome of the sample at fault."""

    outcome: Outcome
    was_killed: bool = False  # the process was killed by another process


class ScorerProcess:
    """One scorer process, started without waiting for it.

    Raises:
        RuntimeError: it cannot be started.
    """

    def __init__(self, task: Task, budget: OutputBudget) -> None:
        self._task, self._budget = task, budget
        try:
            self._launched = launch(
                max_printed=budget.share(), environment=scorer_environment(task.functions, os.environ)
            )
        except OSError as error:
            raise RuntimeError(
                f"a scorer process cannot be started: {error}. Is the machine short of memory, processes or files?"
            ) from error
        self._reader = AnswerReader(self._launched.connection, self._launched.subreaper.pid)
        self._ready: Ready | None = None
        self._last_output = ""
        self._is_dead = False
        self.was_killed = False  # by another process, as far as is known
        self._num_requests = 0
        self._send(task)

    @property
    def mode(self) -> str:
        """How its functions are called; known once it is ready."""
        assert self._ready is not None, "the scorer process is not ready"
        return self._ready.mode

    def wait_ready(self) -> None:
        """Return when the functions are loaded; if it raises, the process is dead.

        Raises:
            ValueError: a function cannot be used.
            RuntimeError: the process died, or took longer than ``START_TIMEOUT_S``.
        """
        try:
            greeting = self._reader.next(START_TIMEOUT_S)
            if isinstance(greeting, Ready):
                self._ready = greeting
                return
        except BaseException:  # Ctrl-C
            self.kill()
            raise
        if isinstance(greeting, Unusable):
            self.kill()
            raise ValueError(greeting.reason)
        if greeting is None:
            self.kill()
            raise RuntimeError(
                f"a scorer process did not load its function within {START_TIMEOUT_S:.0f} s. Make the reward "
                f"file's imports lighter{self._output_suffix()}"
            )
        raise RuntimeError(
            f"a scorer process {self._ending(greeting)} before its function was loaded{self._output_suffix()}"
        )

    def was_ready(self) -> bool:
        """Return whether a greeting has arrived, read or not."""
        return self._ready is not None or any(isinstance(each, Ready) for each in self._reader.arrived())

    def is_running(self) -> bool:
        return self._launched.subreaper.poll() is None

    def is_fit(self) -> bool:
        """Return whether the process runs and has sent nothing without a request."""
        unasked = self._reader.arrived()
        if any(not isinstance(each, Ended | Gone) for each in unasked):
            log.warning("a scorer process is replaced: it sent %s without a request", unasked[0])
        return self.is_running() and not unasked

    def score(self, samples: Sequence[Sample]) -> tuple[dict[int, Outcome], Loss | None]:
        """Score these samples.

        Returns:
            The outcome of each sample that was answered, by its position, and the reason if some were not. In that case
            the process is dead, unless it reported itself that a call for all samples had failed.
        """
        outcomes: dict[int, Outcome] = {}
        try:
            self._send(list(samples))
            while len(outcomes) < len(samples):
                more_follow = len(samples) - len(outcomes) > MIN_GATHERED
                answer = self._next(self._answer_timeout_s, missing="no score", more_follow=more_follow)
                if isinstance(answer, Loss):
                    return outcomes, answer
                if not self._fits(answer, range(-1, len(samples))):
                    return outcomes, self._crash(Intrusion(f"{answer}"), 0.0)
                if answer.position < 0:
                    return outcomes, Loss(answer.outcome)
                if outcomes.pop(answer.position, None) is not None:  # neither of the two can be trusted
                    return outcomes, self._crash(Intrusion("a second answer for one sample"), 0.0)
                outcomes[answer.position] = answer.outcome
        except BaseException:  # Ctrl-C: pending answers must not be taken for those of the next samples
            self.kill()
            raise
        return outcomes, None

    def _fits(self, answer: Message, positions: range) -> TypeGuard[Answer]:
        return isinstance(answer, Answer) and answer.request == self._num_requests and answer.position in positions

    def read(self, ground_truths: Sequence[RowGroundTruth]) -> tuple[list[GroundTruthReading], Loss | None]:
        """Read these ground truths.

        Returns:
            The readings of the first ones, and the reason if some are left. In that case the process is dead; if
            several are left, the one at fault is unknown.
        """
        readings: list[GroundTruthReading] = []
        # A silent piece is read again one by one, so that a long wait for the whole piece would be wasted.
        timeout_s = self._task.timeout_s if len(ground_truths) == 1 else min(self._task.timeout_s, PIECE_TIMEOUT_S)
        try:
            self._send(ReadGroundTruths(ground_truths))
            while (left := len(ground_truths) - len(readings)) > 0:
                answer = self._next(timeout_s, missing="not read")
                if isinstance(answer, Loss):
                    return readings, answer
                if (
                    not isinstance(answer, GroundTruthsRead)
                    or answer.request != self._num_requests
                    or len(answer.readings) > left
                ):
                    return readings, self._crash(Intrusion(f"{answer}"), 0.0)
                readings += answer.readings
        except BaseException:  # Ctrl-C, as above
            self.kill()
            raise
        return readings, None

    def _next(self, timeout_s: float, *, missing: str, more_follow: bool = False) -> Message | Loss:
        """Return the next message; a :class:`Loss` if none arrives, and the process is dead then."""
        started = time.perf_counter()
        found = self._reader.next(timeout_s, more_follow=more_follow)
        if found is None:
            return self._overdue(time.perf_counter() - started, missing)
        if isinstance(found, Ended | Gone | Intrusion):
            return self._crash(found, time.perf_counter() - started)
        return found

    @property
    def _answer_timeout_s(self) -> float:
        return self._task.timeout_s + (CANCEL_GRACE_S if self.mode == "concurrent" else 0.0)

    def _overdue(self, seconds: float, missing: str) -> Loss:
        self.kill()
        message = f"{missing} within reward.timeout_s={self._task.timeout_s:g}; the scorer process was killed"
        return Loss(Outcome("timeout", None, {}, message, seconds))

    def _crash(self, last: Message, seconds: float) -> Loss:
        message = f"the scorer process {self._ending(last)}{self._output_suffix()}"
        return Loss(Outcome("crash", None, {}, message, seconds), self.was_killed)

    def _send(self, wanted: Any) -> None:
        self._num_requests += 1
        try:
            send_request(self._launched.connection, self._num_requests, wanted)
        except OSError:
            # Dead, or stopped: the wait for the answer finds out which, and reports it.
            pass

    def end(self) -> None:
        """Make the kernel end the process, and its subreaper the descendants, even if another thread is using it.

        That thread notices at its next use of the process. Use :meth:`kill` for a process of the calling thread.
        """
        self._launched.end()

    def kill(self) -> None:
        """End the process and everything it has started."""
        if self._is_dead:
            return
        self._launched.end()
        self._launched.wait()
        for each in self._reader.arrived():
            self._record_end(each)
        self._last_output = self._last_output or self._launched.rest()  # if no subreaper reported them
        self._launched.close()
        self._is_dead = True

    def _record_end(self, message: Message) -> None:
        if isinstance(message, Ended):
            self._last_output = message.last_output
            self._budget.take(message.num_passed_on)

    def _ending(self, last: Message) -> str:
        """Return how the process ended, by its last message; kill it if it still runs."""
        self._record_end(last)
        subreaper_code = None
        if isinstance(last, Gone):
            with suppress(subprocess.TimeoutExpired):
                subreaper_code = self._launched.subreaper.wait(timeout=ENDING_TIMEOUT_S)
        self.kill()
        self.was_killed = -signal.SIGKILL in (subreaper_code, last.code if isinstance(last, Ended) else None)
        match last:
            case Intrusion(what):
                return (
                    f"was killed, because its connection received what it had not sent: {what:.200}. A reward function "
                    "must not return in a process that it has forked, nor write to files that it has not opened"
                )
            case Ended(code) if code >= 0:
                how = f"exited with code {code}"
            case Ended(code):
                hint = " (out of memory?)" if -code == signal.SIGKILL else ""
                how = f"was killed by {_signal_name(-code)}{hint}"
            case _:
                how = (
                    "closed its connection" if subreaper_code is None else f"lost its subreaper (code {subreaper_code})"
                )
        return how

    def _output_suffix(self) -> str:
        return f". It printed last:\n{self._last_output[-MAX_CHARS:]}" if self._last_output else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
