"""A process that scores samples and that can be killed, and warm spares of it.

A thread that holds the interpreter lock cannot be stopped; a process can. What runs inside is
:mod:`verl_like.reward.scorer_main`.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from verl_like.reward.messages import Answer, Outcome, ReadTruths, Ready, RowTruth, Sample, Task, TruthReading

START_TIMEOUT_S = 60.0  # covers the imports of a user's file
SOCKET_TIMEOUT_S = 30.0  # one message through a pipe; only a stopped process takes that long
PIECE_TIMEOUT_S = 5.0  # for the next news of several truths that are read
CANCEL_GRACE_S = 1.0  # an async call is cancelled by its own process first


@dataclass(frozen=True, slots=True)
class Loss:
    """Why samples were left without an answer, told as the outcome of the one at fault."""

    outcome: Outcome
    was_killed: bool = False  # the process, by somebody else


class ScorerProcess:
    """One scorer process, started without waiting for it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        ours, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        # Bounds a send to, or half a message from, a process that is stopped; the connection works on the bare
        # descriptor.
        limit = struct.pack("ll", int(SOCKET_TIMEOUT_S), 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "verl_like.reward.scorer_main", str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                stdin=subprocess.DEVNULL,
                # Ctrl-C is the parent's business, and a kill reaches what the scorer has started
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        os.close(lifeline_read)
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._ready: Ready | None = None
        self._send(task)

    @property
    def mode(self) -> str:
        """How its functions are called; known once it is ready."""
        assert self._ready is not None, "the scorer process is not ready"
        return self._ready.mode

    def wait_ready(self) -> None:
        """Return when the functions are loaded.

        Raises:
            ValueError: a function cannot be used.
            RuntimeError: the process died, or took longer than ``START_TIMEOUT_S``.
        """
        try:
            if not self._connection.poll(START_TIMEOUT_S):
                raise RuntimeError(
                    f"a scorer process did not load its function within {START_TIMEOUT_S:.0f} s. Make the reward "
                    f"file's imports lighter."
                )
            greeting = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(
                f"a scorer process {self._ending()} before its function was loaded; its own output says more."
            ) from error
        if not isinstance(greeting, Ready):
            raise ValueError(greeting)
        self._ready = greeting

    def was_ready(self) -> bool:
        """Whether a greeting has come, read or not."""
        return self._ready is not None or self._connection.poll(0)

    def is_alive(self) -> bool:
        return self._exit_code() is None

    def score(self, samples: Sequence[Sample]) -> tuple[dict[int, Outcome], Loss | None]:
        """Have these samples scored.

        Returns:
            The outcome of each sample that was answered, by its position; and where some were not, why. The process is
            dead then, unless it said itself that a call for all of them had failed.
        """
        outcomes: dict[int, Outcome] = {}
        try:
            self._send(list(samples))
            while len(outcomes) < len(samples):
                answer: Answer | Loss = self._next(self._answer_timeout_s, missing="no score")
                if isinstance(answer, Loss):
                    return outcomes, answer
                if answer.position < 0:
                    return outcomes, Loss(answer.outcome)
                outcomes[answer.position] = answer.outcome
        except BaseException:  # Ctrl-C: answers still on their way must not be taken for the next samples'
            self.kill()
            raise
        return outcomes, None

    def read(self, truths: Sequence[RowTruth]) -> tuple[list[TruthReading], Loss | None]:
        """Have these truths read.

        Returns:
            The readings of the first of them; and where some are left, why. The process is dead then. Of several, it is
            not known which one is at fault.
        """
        readings: list[TruthReading] = []
        # A piece that is silent is read again one by one, so that waiting long for it would be in vain.
        timeout_s = self._task.timeout_s if len(truths) == 1 else min(self._task.timeout_s, PIECE_TIMEOUT_S)
        try:
            self._send(ReadTruths(truths))
            while len(readings) < len(truths):
                answer: list[TruthReading] | Loss = self._next(timeout_s, missing="not read")
                if isinstance(answer, Loss):
                    return readings, answer
                readings += answer
        except BaseException:  # Ctrl-C, as above
            self.kill()
            raise
        return readings, None

    def _next(self, timeout_s: float, *, missing: str) -> Any:
        """The next message; a :class:`Loss` where none comes, and the process is dead then."""
        started = time.perf_counter()
        try:
            if not self._connection.poll(timeout_s):
                return self._overdue(time.perf_counter() - started, missing)
            return self._connection.recv()
        except (EOFError, OSError):
            return self._crash(time.perf_counter() - started)

    @property
    def _answer_timeout_s(self) -> float:
        return self._task.timeout_s + (CANCEL_GRACE_S if self.mode == "concurrent" else 0.0)

    def _overdue(self, seconds: float, missing: str) -> Loss:
        self.kill()
        message = f"{missing} within reward.timeout_s={self._task.timeout_s:g}; the scorer process was killed"
        return Loss(Outcome("timeout", None, {}, message, seconds))

    def _crash(self, seconds: float) -> Loss:
        outcome = Outcome("crash", None, {}, f"the scorer process {self._ending()}", seconds)
        was_killed = self._exit_code() == -signal.SIGKILL
        self.kill()
        return Loss(outcome, was_killed)

    def _send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            # Dead, or stopped: whoever waits for the answer finds out which, and says so.
            pass

    def end(self) -> None:
        """Have the kernel end the process and everything it has started, whichever thread is using it.

        That thread is told by its next look at the process; :meth:`kill` is for itself.
        """
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process and everything it has started."""
        if self._process.returncode is None:
            self.end()
            self._process.wait(timeout=SOCKET_TIMEOUT_S)
        self._connection.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _exit_code(self) -> int | None:
        """The code as subprocess has it, None while the process runs.

        It is not waited for: the number of the group that :meth:`kill` ends must stay taken.
        """
        if self._process.returncode is not None:
            return self._process.returncode
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _ending(self) -> str:
        deadline = time.monotonic() + 1.0
        while (code := self._exit_code()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        if code is None:
            return "closed its connection"
        if code >= 0:
            return f"exited with code {code}"
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{hint}"


class Spares:
    """Starts scorer processes ahead of need, so that a killed one is replaced at once; for use by many threads.

    Args:
        num_first: processes that are taken at the start; one more is always kept warm.
    """

    def __init__(self, task: Task, num_first: int) -> None:
        self.task = task
        self._lock, self._is_closed = threading.Lock(), False
        self._warm = deque(ScorerProcess(task) for _ in range(num_first + 1))

    def take(self) -> ScorerProcess:
        """Hand out a process that is ready.

        Raises:
            ValueError: the functions cannot be loaded or called; the message says why.
            RuntimeError: the process died, or took too long, before they were loaded.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the scorer processes are being shut down")
            process = self._warm.popleft()
            if not self._warm:
                self._warm.append(ScorerProcess(self.task))
        if not process.is_alive() and process.was_ready():  # killed while it waited, e.g. for memory
            process.kill()
            return self.take()
        try:
            process.wait_ready()
        except BaseException:
            process.kill()
            raise
        return process

    def close(self) -> None:
        """Kill those that wait; whoever asks for another from now on is told."""
        with self._lock:
            self._is_closed = True
            for process in self._warm:
                process.kill()
