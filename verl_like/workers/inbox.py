"""Messages to an engine that steps all the time: its thread takes them between two steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from verl_like.controller.errors import StageTimeout
from verl_like.workers.engine_ranks import EngineRanks

IDLE_S = 0.5  # longest wait for a message; the ranks of an engine agree at least as often


@dataclass(frozen=True, slots=True)
class Message:
    """Work for the engine's thread.

    Args:
        work: its result, or its error, is the answer.
        waits: whether it waits until the engine has finished everything that came before it.
    """

    work: Callable[[], Any]
    waits: bool = False
    answer: Future[Any] = field(default_factory=Future)


class Inbox:
    """Messages in the order of their arrival. The ranks of an engine get the same ones, and take them at the same step.

    Another thread than the engine's puts them in.

    Args:
        timeout_s: within which a message that one rank has must reach the others.
    """

    def __init__(self, ranks: EngineRanks, *, timeout_s: float) -> None:
        self._ranks, self._timeout_s = ranks, timeout_s
        self._messages: deque[Message] = deque()
        self._num_put = self._num_taken = 0
        self._changed = threading.Condition()

    def put(self, message: Message) -> None:
        with self._changed:
            self._messages.append(message)
            self._num_put += 1
            self._changed.notify_all()

    def work_through(self, *, is_idle: bool) -> int:
        """Do the work of the messages that have arrived; wait for one at most ``IDLE_S`` if the engine is idle.

        Returns:
            The number of messages. An error in a message's work is its answer and is raised here, too.
        """
        if is_idle and self._ranks.is_first:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._messages), IDLE_S)
        end = self._ranks.from_first(self._num_put)
        before = self._num_taken
        while self._num_taken < end:
            with self._changed:
                if not self._changed.wait_for(lambda: bool(self._messages), self._timeout_s):
                    raise StageTimeout(
                        f"a message that the engine's first rank has did not arrive in {self._timeout_s} s"
                    )
                message = self._messages[0]
                if message.waits and not is_idle:
                    break
                self._messages.popleft()
            self._num_taken += 1
            is_idle = False  # until the engine says so again
            self._do(message)
        return self._num_taken - before

    def _do(self, message: Message) -> None:
        try:
            message.answer.set_result(message.work())
        except BaseException as error:
            message.answer.set_exception(error)
            raise
