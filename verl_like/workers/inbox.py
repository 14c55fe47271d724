"""Messages to an engine that steps all the time: its thread takes them between two steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from verl_like.context import current
from verl_like.controller.errors import Interrupt, StageTimeout, WorkerRefusal
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.messages import Event

IDLE_S = 0.5  # longest wait for a message; the ranks of an engine agree at least as often


@dataclass(frozen=True, slots=True)
class Message:
    """Work for the engine's thread.

    Args:
        work: its result, or its error, is the answer.
        kind, number, rows: of its :class:`Event`; empty if it does not change what the engine computes.
        waits: whether it waits until the engine has finished everything that came before it.
    """

    work: Callable[[], Any]
    kind: str = ""
    number: int = 0
    rows: tuple[int, ...] = ()
    waits: bool = False
    answer: Future[Any] = field(default_factory=Future)

    def event(self, step: int) -> Event:
        return Event(step, self.kind, self.number, self.rows)


class Inbox:
    """Messages in the order of their arrival. The ranks of an engine get the same ones, and take them at the same step.

    Another thread than the engine's puts them in.

    Args:
        timeout_s: within which a message that one rank has, or that a schedule names, must arrive.
    """

    def __init__(self, ranks: EngineRanks, *, timeout_s: float) -> None:
        self._ranks, self._timeout_s = ranks, timeout_s
        self._messages: deque[Message] = deque()
        self._num_put = self._num_taken = 0
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._planned: deque[Event] = deque()

    def put(self, message: Message) -> None:
        with self._changed:
            self._messages.append(message)
            self._num_put += 1
            self._changed.notify_all()

    def follow(self, events: Iterable[Event]) -> None:
        """Take these messages before the same steps again; later ones are taken as they arrive."""
        self._planned.extend(events)

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        found, self._events = self._events, []
        return found

    def work_through(self, *, step: int, is_idle: bool) -> None:
        """Do the work of the messages that have arrived; wait for one at most ``IDLE_S`` if the engine is idle.

        An error in a message's work is its answer and is raised here, too.

        Args:
            step: engine steps so far.

        Raises:
            WorkerRefusal: the messages are not those of the schedule to follow.
        """
        if self._planned and not self._follow(step, is_idle=is_idle):
            return
        if is_idle and self._ranks.is_first:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._messages), IDLE_S)
        end = self._ranks.from_first(self._num_put)
        while self._num_taken < end:
            with self._changed:
                message = self._next()
                if message.waits and not is_idle:
                    return
            is_idle = False  # until the engine says so again
            self._take(step)

    def _follow(self, step: int, *, is_idle: bool) -> bool:
        """Take what the schedule names for this step; return whether it is over."""
        while self._planned:
            with self._changed:
                if self._planned[0].step > step and not self._messages and not is_idle:
                    return False
                message = self._next()
            if message.kind and self._planned[0].step > step and not is_idle:
                return False
            if message.kind:
                planned, found = self._planned.popleft(), message.event(step)
                if planned != found:
                    raise WorkerRefusal(
                        f"the schedule to repeat names {planned.text} before the engine's step {planned.step}, but "
                        f"{found.text} came before step {found.step}. Repeat it with the command, the data and the "
                        "versions of the recorded run."
                    )
                is_idle = False  # until the engine says so again
            self._take(step)
        return True

    def _next(self) -> Message:
        """Return the next message, which arrives within the timeout; the caller holds the lock."""
        deadline = time.monotonic() + self._timeout_s
        while not self._changed.wait_for(lambda: bool(self._messages), IDLE_S):
            current(Heartbeat).tick()
            current(Interrupt).stop_before("rollout")
            if time.monotonic() >= deadline:
                raise StageTimeout(f"what this engine must take next did not arrive in {self._timeout_s:.0f} s")
        return self._messages[0]

    def _take(self, step: int) -> None:
        with self._changed:
            message = self._messages.popleft()
        self._num_taken += 1
        if message.kind:
            self._events.append(message.event(step))
        try:
            message.answer.set_result(message.work())
        except BaseException as error:
            message.answer.set_exception(error)
            raise
