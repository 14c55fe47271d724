"""A reward function in a process that can be killed.

A thread that holds the interpreter lock cannot be stopped; a process can. Samples go to the child in chunks and come
back one by one. Past its deadline a sample's process is killed and a warm spare takes over with the samples that are
left, so every sample gets exactly one outcome, and a failure is never a score.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

START_TIMEOUT_S = 60.0  # covers the imports of a user's file
SOCKET_TIMEOUT_S = 30.0  # one message through a pipe; only a stopped process takes that long
CHUNK_SAMPLES = 64  # sent at once; what a killed process leaves is sent again


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one sample. ``score`` is None unless ``status`` is ok."""

    status: str  # "ok", "timeout" (killed), "crash" (the process died) or "error" (the function raised)
    score: float | None
    details: dict[str, float | str]
    message: str  # why there is no score
    seconds: float


class ScorerProcess:
    """Scores samples in a child process, with a second one warm behind it.

    Args:
        function: as in ``reward.function``; a relative path counts from the working directory.
        function_kwargs: passed to the function with each sample.
        timeout_s: longest time for one sample.

    Raises:
        ValueError: when the function cannot be loaded or called; the message says why.
    """

    def __init__(self, function: str, function_kwargs: Mapping[str, Any], timeout_s: float) -> None:
        self._init = (function, dict(function_kwargs))
        self._timeout_s = timeout_s
        self._child = _Child(self._init)
        self._spare = _Child(self._init)
        try:
            self._child.wait_ready()
        except BaseException:
            self.close()
            raise

    def score(self, sample: Mapping[str, Any]) -> Outcome:
        """Score one sample: ``data_source``, ``solution_str``, ``ground_truth``, ``extra_info``."""
        return list(self.score_many([sample]))[0]

    def score_many(self, samples: Sequence[Mapping[str, Any]]) -> Iterator[Outcome]:
        """One outcome per sample, in order, each as soon as it is there."""
        answered = 0
        while answered < len(samples):
            for outcome in self._answers(samples[answered : answered + CHUNK_SAMPLES]):
                answered += 1
                yield outcome

    def close(self) -> None:
        """Kill both processes; none is left when this returns."""
        self._child.kill()
        self._spare.kill()

    def __enter__(self) -> ScorerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _answers(self, chunk: Sequence[Mapping[str, Any]]) -> Iterator[Outcome]:
        """Outcomes of the chunk, up to and including the first that cost the process."""
        if not self._child.is_alive():  # killed while idle, e.g. for memory: no sample's fault
            self._replace()
        in_flight = len(chunk)
        try:
            self._child.send(list(chunk))
            while in_flight:
                outcome = self._child.receive(self._timeout_s)
                if outcome.status in ("timeout", "crash"):
                    self._replace()
                    in_flight = 0
                else:
                    in_flight -= 1
                yield outcome
        finally:
            if in_flight:  # the caller stopped listening: answers still on their way would be taken for the next chunk's
                self._replace()

    def _replace(self) -> None:
        self._child.kill()
        if not self._spare.is_alive():
            self._spare.kill()
            self._spare = _Child(self._init)
        self._child, self._spare = self._spare, _Child(self._init)
        self._child.wait_ready()


class _Child:
    """One scorer process, started without waiting for it."""

    def __init__(self, init: tuple[str, dict[str, Any]]) -> None:
        ours, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        # Bounds a send to, or half a message from, a process that is stopped; the connection works on the bare descriptor.
        limit = struct.pack("ll", int(SOCKET_TIMEOUT_S), 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "verl_like.reward.child", str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the parent's business, and a kill reaches what the scorer has started
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        os.close(lifeline_read)
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._is_ready = False
        self.send(init)

    def wait_ready(self) -> None:
        """Return when the function is loaded.

        Raises:
            ValueError: the function cannot be used.
            RuntimeError: the process died, or took longer than ``START_TIMEOUT_S``.
        """
        if self._is_ready:
            return
        try:
            if not self._connection.poll(START_TIMEOUT_S):
                raise RuntimeError(
                    f"a scorer process did not load its function within {START_TIMEOUT_S:.0f} s. Make the reward file's imports lighter."
                )
            greeting = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(f"a scorer process {self._ending()} before its function was loaded; its own output says more.") from error
        if greeting != "ready":
            raise ValueError(greeting)
        self._is_ready = True

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            # Dead, or stopped: receive() finds out which, and says so in an outcome.
            pass

    def receive(self, timeout_s: float) -> Outcome:
        """The next answer, or an outcome that says why there will be none."""
        started = time.perf_counter()
        try:
            if self._connection.poll(timeout_s):
                return Outcome(*self._connection.recv())
            message = f"no score within reward.timeout_s={timeout_s:g}; the scorer process was killed"
            return Outcome("timeout", None, {}, message, time.perf_counter() - started)
        except (EOFError, OSError):
            return Outcome("crash", None, {}, f"the scorer process {self._ending()}", time.perf_counter() - started)

    def kill(self) -> None:
        """End the process and everything it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(timeout=SOCKET_TIMEOUT_S)
        self._connection.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _ending(self) -> str:
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code >= 0:
            return f"exited with code {code}"
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{hint}"
