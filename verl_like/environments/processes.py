"""The processes that run users' environments, as the process that generates sees them.

A nursery loads the user's code once. Each episode runs in a process that the nursery forks, so that a crash, a hang or
a kill ends one episode alone. Calls do not block: :meth:`EnvironmentProcesses.poll` returns the answers that have
arrived. A call fails if its process ends or its deadline passes.

A process whose episode has left nothing serves another, ``episodes_per_process`` in all, because a fork costs
more than a short episode. At most ``max_processes`` exist, and :data:`FORKS_AT_ONCE` are being forked. Other episodes
wait, and the time of their calls begins when their process does.

A nursery that ends or is stopped is replaced, :data:`MAX_RESTARTS` times in all: episodes that have a process fail as
crashed, and those that wait for one get it from the new nursery.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import resource
import selectors
import socket
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from verl_like.environments.nursery_connection import NurseryConnection
from verl_like.environments.nursery_start import Loaded, NurseryLost, ProcessSettings
from verl_like.environments.process_calls import CallAnswer, CallFailure, OpenCall, Process, printable, read_answers
from verl_like_environments.frames import encoded

FORK_TIMEOUT_S = 30.0  # for a fork, which takes milliseconds; only a stopped nursery takes that long
FORKS_AT_ONCE = 16
EXHAUSTED_TIMEOUT_S = 30.0  # until a machine without a free process ends the run
RETRY_S = 0.5
MAX_RESTARTS = 3  # of a nursery
END_REPORT_S = 0.2  # in which the nursery reports how a process ended, and its last answer arrives
SPARE_FILES = 128  # descriptors left to the rest of the process that generates
_END = 0  # in place of the number of a call: the time in which an ended process is waited for

__all__ = [
    "CallAnswer",
    "CallFailure",
    "EnvironmentProcesses",
    "Loaded",
    "NurseryLost",
    "ProcessSettings",
    "ProcessesExhausted",
]

log = logging.getLogger(__name__)


class ProcessesExhausted(RuntimeError):
    """The machine allows no further process or file, and no process of an environment is running."""


class EnvironmentProcesses:
    """A nursery and its processes, used between :meth:`start` and :meth:`close`.

    All methods are for one thread, except for :meth:`wake`.
    """

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._max_processes = min(settings.max_processes, _free_files())
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, Process] = {}
        self._waiting: deque[int] = deque()
        self._forking: dict[int, float] = {}  # -> when the nursery was asked, in this sequence
        self._running: dict[int, Process] = {}  # by the nursery's number; among them those that are idle
        self._idle: deque[Process] = deque()
        self._num_processes = self._num_calls = 0
        self._answers: list[CallAnswer] = []  # that poll() has not returned
        self._deadlines: list[tuple[float, int, int]] = []  # heap of time, process, call; those answered stay in it
        self._retry_at = self._exhausted_since = math.inf
        self._is_exhaustion_logged = False
        self._num_restarts = 0
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def start(self) -> None:
        """Start the nursery.

        Raises:
            ValueError: the interpreter cannot be started.
        """
        self._nursery = NurseryConnection(self._settings)

    def close(self) -> None:
        """End all processes, and all that they have started."""
        for process in self._processes.values():
            if process.connection is not None:
                process.connection.close()
        self._selector.close()
        self._nursery.close()
        os.close(self._woken)

    def load(self) -> Loaded:
        """Load the user's code and return what it is.

        Raises:
            ValueError: it cannot be loaded, or follows no contract.
            TimeoutError: it was not loaded in time.
        """
        found = self._nursery.load()
        self._selector.register(self._nursery.socket, selectors.EVENT_READ)
        return found

    def open(self) -> int:
        """Find a process for an episode, at once or as soon as there may be one, and return the episode's number."""
        self._num_processes += 1
        number = self._num_processes
        self._processes[number] = Process(number=number, max_message_mib=self._settings.max_message_mib)
        self._waiting.append(number)
        with suppress(NurseryLost):  # poll() replaces it
            self._start_waiting()
        return number

    def is_waiting(self, number: int) -> bool:
        """Return whether an episode has no process yet, because others have to end first."""
        return (process := self._processes.get(number)) is not None and not process.has_started

    def call(self, number: int, request: Mapping[str, Any], *, limit_s: float) -> int:
        """Send a request to a process and return the number of the call, whose answer :meth:`poll` returns."""
        self._num_calls += 1
        call_number = self._num_calls
        process = self._processes.get(number)
        if process is None or process.failure is not None:
            failure = process.failure if process is not None else None
            ended = CallFailure(reason="crash", text="the environment's process has ended")
            self._answers.append(CallAnswer(call=call_number, failure=failure or ended))
            return call_number
        try:
            frame = encoded({"id": call_number, **request})
        except (TypeError, ValueError, RecursionError) as error:  # a column of the row
            failure = CallFailure(reason="junk", text=f"the request cannot be written as JSON: {printable(str(error))}")
            self._answers.append(CallAnswer(call=call_number, failure=failure))
            return call_number
        call = OpenCall(what=str(request["do"]), limit_s=limit_s, frame=frame)
        process.calls[call_number] = call
        process.unsent += call.frame
        if process.has_started:
            self._set_deadline(number, call_number, limit_s)
        if process.connection is not None:
            self._send(process)
        return call_number

    def end(self, number: int) -> None:
        """End an episode; calls of it get no answer. Its process is ended, unless it can serve another episode."""
        if (process := self._processes.pop(number, None)) is None:
            return
        if process.can_serve_again(self._settings.episodes_per_process):
            self._idle.append(process)
        else:
            self._stop(process)

    def wait_for(self, call: int) -> CallAnswer:
        """Return the answer to a call, the only one in progress. Its limit and that of a fork end the wait.

        Raises: as :meth:`poll`.
        """
        while True:
            for answer in self.poll(1.0):
                if answer.call == call:
                    return answer

    def poll(self, timeout_s: float) -> list[CallAnswer]:
        """Return the answers that have arrived, waiting at most ``timeout_s`` for the first or for :meth:`wake`.

        Raises:
            NurseryLost: the nursery has ended, or does not fork within ``FORK_TIMEOUT_S``, too often; or it cannot be
                started again.
            ProcessesExhausted: no process can be forked although none of this object's is running.
        """
        try:
            self._poll(timeout_s)
        except NurseryLost as loss:
            self._replace_nursery(loss)
        answers, self._answers = self._answers, []
        return answers

    def _poll(self, timeout_s: float) -> None:
        self._nursery.check()
        self._start_waiting()
        next_at = min(self._deadlines[0][0] if self._deadlines else math.inf, self._retry_at)
        wait_s = 0.0 if self._answers else max(min(timeout_s, next_at - time.monotonic()), 0.0)
        for key, events in self._selector.select(wait_s):
            if key.data is None:
                if key.fileobj == self._woken:
                    os.eventfd_read(self._woken)
                else:
                    self._read_packet()
                continue
            process: Process = key.data
            if process.connection is not key.fileobj:  # a packet that was read before has ended it
                continue
            if events & selectors.EVENT_WRITE:
                self._send(process)
            if events & selectors.EVENT_READ:
                self._read(process)
        self._end_late()

    def _end_late(self) -> None:
        now = time.monotonic()
        if self._forking and next(iter(self._forking.values())) + FORK_TIMEOUT_S < now:
            raise self._nursery.lost(f"has not forked a process within {FORK_TIMEOUT_S:g} s")
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number, call = heapq.heappop(self._deadlines)
            process = self._processes.get(number)
            if process is None or process.failure is not None:
                continue
            if call == _END:
                self._fail(process, CallFailure(reason="crash", text=process.how_ended()))
            elif call in process.calls:
                text = f"{process.calls[call].what} did not return in time"
                self._fail(process, CallFailure(reason="timeout", text=text))

    def _replace_nursery(self, loss: NurseryLost) -> None:
        """Start and load a nursery in place of a lost one; fail the episodes that have a process.

        Raises:
            NurseryLost: this has happened too often, or the new one cannot load the user's code.
        """
        if self._num_restarts == MAX_RESTARTS:
            raise NurseryLost(
                f"{loss} It was started again {MAX_RESTARTS} times. Try the file with verl-like play --by-hand, or "
                f"lower environment.max_processes if memory runs out."
            ) from loss
        self._num_restarts += 1
        failed = [each for each in self._processes.values() if each.has_started and each.failure is None]
        log.warning(
            "environments are started again (restart %d of at most %d), and %d episodes in progress fail: %s",
            self._num_restarts,
            MAX_RESTARTS,
            len(failed),
            loss,
        )
        for process in failed:
            self._fail(process, CallFailure(reason="crash", text=str(loss)))
        for idle in self._idle:
            self._disconnect(idle)
        for number in reversed(self._forking):
            asked = self._processes.get(number)
            if asked is not None and asked.failure is None:
                self._disconnect(asked)
                asked.rewind()
                self._waiting.appendleft(number)
        for numbers in (self._idle, self._running, self._forking):
            numbers.clear()
        self._selector.unregister(self._nursery.socket)
        self._nursery.close()
        try:
            self.start()
            self.load()
        except (RuntimeError, TimeoutError, ValueError) as error:
            raise NurseryLost(f"{loss} It cannot be started again: {error}") from error

    def wake(self) -> None:
        """Let :meth:`poll` return now, or in its next call; called by any thread."""
        os.eventfd_write(self._woken, 1)

    def _set_deadline(self, number: int, call: int, seconds: float) -> None:
        heapq.heappush(self._deadlines, (time.monotonic() + seconds, number, call))

    def _start_waiting(self) -> None:
        """Give waiting episodes the idle processes, and ask for as many others as may be forked now."""
        while self._waiting and self._idle:
            idle = self._idle.popleft()
            if idle.connection is None or idle.code is not None:
                continue  # it has ended since
            if (process := self._processes.get(self._waiting.popleft())) is None:
                self._idle.appendleft(idle)
                continue
            process.take_over(idle)
            self._running[process.fork] = process
            self._send(process)
            for call in process.calls:
                self._set_deadline(process.number, call, process.calls[call].limit_s)
        if self._retry_at <= time.monotonic():
            self._retry_at = math.inf
        while (
            self._waiting
            and self._retry_at == math.inf
            and len(self._forking) < FORKS_AT_ONCE
            and len(self._forking) + len(self._running) < self._max_processes
        ):
            process = self._processes.get(self._waiting.popleft())
            if process is not None:
                self._ask_for(process)

    def _ask_for(self, process: Process) -> None:
        try:
            own, theirs = socket.socketpair()
        except OSError as error:
            self._put_back(process, str(error))
            return
        own.setblocking(False)
        process.connection, process.fork = own, process.number
        self._selector.register(own, selectors.EVENT_READ, process)
        self._forking[process.number] = time.monotonic()
        with theirs:
            self._nursery.request({"do": "fork", "number": process.fork}, theirs.fileno())
        self._send(process)

    def _put_back(self, process: Process, why: str) -> None:
        """Let a process wait whose fork has failed, until the next attempt."""
        self._disconnect(process)
        process.rewind()
        self._waiting.appendleft(process.number)
        now = time.monotonic()
        self._retry_at = now + RETRY_S
        if self._running:
            if not self._is_exhaustion_logged:
                self._is_exhaustion_logged = True
                log.warning(
                    "no more than %d processes of environments can be forked: %s. Other episodes wait for one of them. "
                    "Raise the machine's limit, or lower the number of episodes that run at once.",
                    len(self._running),
                    why,
                )
            return
        self._exhausted_since = min(self._exhausted_since, now)
        if now - self._exhausted_since > EXHAUSTED_TIMEOUT_S:
            raise ProcessesExhausted(
                f"no process for an environment could be forked for {EXHAUSTED_TIMEOUT_S:g} s: {why}. Raise the limit "
                f"of processes (ulimit -u, or pids.max of the container) or of files (ulimit -n), or free memory."
            )

    def _read_packet(self) -> None:
        packet = self._nursery.receive()
        if packet is None:
            return
        if "forked" in packet:
            self._has_forked(packet["forked"])
        elif "not_forked" in packet:
            if self._forking.pop(packet["not_forked"], None) and (process := self._processes.get(packet["not_forked"])):
                self._put_back(process, packet["why"])
        elif (process := self._running.get(packet["ended"])) is not None:
            process.code = packet["code"]
            if process.number not in self._processes:  # it was idle
                self._stop(process)
            self._set_deadline(process.number, _END, 0.0 if process.connection is None else END_REPORT_S)

    def _has_forked(self, number: int) -> None:
        self._forking.pop(number, None)
        self._exhausted_since = math.inf
        if (process := self._processes.get(number)) is not None and process.failure is None:
            process.has_started = True
            self._running[number] = process
            for call in process.calls:
                self._set_deadline(number, call, process.calls[call].limit_s)
            if process.connection is None:
                self._set_deadline(number, _END, END_REPORT_S)

    def _send(self, process: Process) -> None:
        connection = process.connection
        assert connection is not None, "the process has no connection"
        with suppress(OSError):  # full for now, or its process has ended, which the next read notices
            while process.unsent:
                del process.unsent[: connection.send(process.unsent)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.unsent else 0)
        self._selector.modify(connection, events, process)

    def _read(self, process: Process) -> None:
        found = read_answers(process)
        if isinstance(found, CallFailure):
            self._fail(process, found)
            return
        answers, is_at_end = found
        self._answers += answers
        if is_at_end:
            self._disconnect(process)
            if process.has_started:  # otherwise the nursery reports first whether its fork has failed
                self._set_deadline(process.number, _END, 0.0 if process.code is not None else END_REPORT_S)

    def _fail(self, process: Process, failure: CallFailure) -> None:
        """Answer all calls of a process with a failure, and end it."""
        process.failure = failure
        self._stop(process)
        self._answers += [CallAnswer(call=call, failure=failure) for call in process.calls]

    def _stop(self, process: Process) -> None:
        """Make the nursery kill a process that it has forked or is asked to fork."""
        self._disconnect(process)
        self._running.pop(process.fork, None)
        if process.has_started or process.fork in self._forking:
            with suppress(NurseryLost):  # the kernel then ends its processes
                self._nursery.request({"do": "kill", "number": process.fork})

    def _disconnect(self, process: Process) -> None:
        if process.connection is not None:
            self._selector.unregister(process.connection)
            process.connection.close()
            process.connection = None


def _free_files() -> int:
    """Return the number of descriptors that this process may still open, with some left for other uses."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 20
    return max(1, limit - len(os.listdir("/proc/self/fd")) - SPARE_FILES)
