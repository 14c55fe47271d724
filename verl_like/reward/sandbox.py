"""Reward functions in a process that can be killed.

A thread that holds the interpreter lock cannot be stopped; a process can. Samples go to the process in chunks and come
back as they are scored. Past its deadline a sample's process is killed and a warm spare takes over with the samples
that are left, so every sample gets exactly one outcome, and a failure is never a score.
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
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from verl_like.reward.messages import Answer, Outcome, Ready, Sample, Task

START_TIMEOUT_S = 60.0  # covers the imports of a user's file
SOCKET_TIMEOUT_S = 30.0  # one message through a pipe; only a stopped process takes that long
CANCEL_GRACE_S = 1.0  # an async call is cancelled by its own process first
MAX_CHUNK = 64  # samples sent at once; what a killed process leaves is sent again


class Spares:
    """Starts scorer processes ahead of need: ``num_first`` at once, and then always a warm one, so that a killed one is
    replaced at once.

    For use by many threads.
    """

    def __init__(self, task: Task, num_first: int = 1) -> None:
        self.task = task
        self._lock, self._is_closed = threading.Lock(), False
        self._warm = deque(Child(task) for _ in range(num_first + 1))

    def take(self) -> Child:
        """A process that is ready.

        Raises:
            ValueError: the functions cannot be loaded or called; the message says why.
            RuntimeError: the process died, or took too long, before they were loaded.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the scorer processes are being shut down")
            child = self._warm.popleft()
            if not self._warm:
                self._warm.append(Child(self.task))
        if not child.is_alive() and child.was_ready():  # killed while it waited, e.g. for memory
            child.kill()
            return self.take()
        try:
            child.wait_ready()
        except BaseException:
            child.kill()
            raise
        return child

    def close(self) -> None:
        """Kill those that wait; whoever asks for another from now on is told."""
        with self._lock:
            self._is_closed = True
            for child in self._warm:
                child.kill()


@dataclass(frozen=True, slots=True)
class _Loss:
    """Why an attempt ended before all its samples were answered, told as the outcome of the one at fault."""

    outcome: Outcome
    was_killed: bool = False  # by somebody else


class ScorerProcess:
    """Scores samples in one process at a time, which ``spares`` replaces when it dies or has to be killed."""

    def __init__(self, spares: Spares) -> None:
        self._spares = spares
        self._child = spares.take()
        self._max_chunk = MAX_CHUNK

    @property
    def mode(self) -> str:
        """``each``, ``batch`` or ``concurrent``, as in :class:`verl_like.reward.scoring.Scoring`."""
        return self._child.mode

    def score(self, samples: Sequence[Sample]) -> list[Outcome]:
        """One outcome per sample, in order."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(samples):
            outcomes += self._scored(samples[len(outcomes) : len(outcomes) + self._max_chunk])
        return outcomes

    def interrupt(self) -> None:
        """End what another thread is having scored; its call ends with an error, if ``spares`` are closed."""
        self._child.end()

    def close(self) -> None:
        self._child.kill()

    def _scored(self, chunk: Sequence[Sample]) -> list[Outcome]:
        """One outcome per sample of a chunk.

        A process that is lost takes down the sample it was busy with. Where it was busy with several (a batch, async
        calls), they are scored again one by one, which finds the culprit. A process that somebody else killed is no
        sample's fault: its sample gets one more attempt.
        """
        outcomes: dict[int, Outcome] = {}
        tried_again: set[int] = set()
        suspects: list[int] = []
        spoiled: Outcome | None = None
        work = deque([list(range(len(chunk)))])
        while work:
            group = work.popleft()
            loss = self._attempt(chunk, group, outcomes)
            left = [i for i in group if i not in outcomes]
            if loss is None:
                assert not left, f"the scorer left out samples {left} of {len(chunk)}"
            elif self.mode != "each" and len(left) > 1:
                suspects, spoiled = left, loss.outcome
                work.extendleft([i] for i in reversed(left))
            elif loss.was_killed and left[0] not in tried_again:
                tried_again.add(left[0])
                work.appendleft(left)
            else:
                outcomes[left[0]] = loss.outcome
                if left[1:]:
                    work.appendleft(left[1:])
        if spoiled is not None and all(outcomes[i].status == "ok" for i in suspects):
            # Nobody was at fault: the batch as a whole was too much, for one sample's time or for the function.
            self._max_chunk = max(1, len(suspects) // 2)
            why = f"scored alone, after a batch of {len(suspects)} had failed ({spoiled.status}): {spoiled.message}"
            outcomes |= {i: replace(outcomes[i], message=why) for i in suspects}
        return [outcomes[i] for i in range(len(chunk))]

    def _attempt(self, chunk: Sequence[Sample], group: Sequence[int], outcomes: dict[int, Outcome]) -> _Loss | None:
        """Have these samples scored; what was answered is in ``outcomes`` even where the process is lost."""
        if not self._child.is_alive():  # killed while idle: no sample's fault
            self._replace()
        timeout_s = self._spares.task.timeout_s + (CANCEL_GRACE_S if self.mode == "concurrent" else 0.0)
        try:
            self._child.send([chunk[i] for i in group])
            for _ in group:
                answer = self._child.receive(timeout_s)
                if isinstance(answer, _Loss):
                    self._replace()
                    return answer
                if answer.position < 0:
                    return _Loss(answer.outcome)
                outcomes[group[answer.position]] = answer.outcome
        except BaseException:  # Ctrl-C: answers still on their way must not be taken for the next chunk's
            self._child.kill()
            raise
        return None

    def _replace(self) -> None:
        self._child.kill()
        self._child = self._spares.take()


class Child:
    """One scorer process, started without waiting for it."""

    def __init__(self, task: Task) -> None:
        ours, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        # Bounds a send to, or half a message from, a process that is stopped; the connection works on the bare
        # descriptor.
        limit = struct.pack("ll", int(SOCKET_TIMEOUT_S), 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "verl_like.reward.child", str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                stdin=subprocess.DEVNULL,
                # Ctrl-C is the parent's business, and a kill reaches what the scorer has started
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        os.close(lifeline_read)
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._ready: Ready | None = None
        self.send(task)

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

    def send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            # Dead, or stopped: receive() finds out which, and says so in an outcome.
            pass

    def receive(self, timeout_s: float) -> Answer | _Loss:
        """The next answer, or why there will be none."""
        started = time.perf_counter()
        try:
            if self._connection.poll(timeout_s):
                answer: Answer = self._connection.recv()
                return answer
            message = f"no score within reward.timeout_s={timeout_s:g}; the scorer process was killed"
            return _Loss(Outcome("timeout", None, {}, message, time.perf_counter() - started))
        except (EOFError, OSError):
            outcome = Outcome("crash", None, {}, f"the scorer process {self._ending()}", time.perf_counter() - started)
            return _Loss(outcome, was_killed=self._exit_code() == -signal.SIGKILL)

    def end(self) -> None:
        """Have the kernel end the process and everything it has started;
        :meth:`kill` is for the thread that uses it.
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
        """As subprocess has it, None while it runs. Not waited for: the number of the group that :meth:`kill` ends must
        stay taken.
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
