"""Calls that may never return, made on threads of their own, so that whoever waits has a deadline and sees Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from verl_like.telemetry import stacks

T = TypeVar("T")
FIRST_SLICE_S, SLICE_S = 0.02, 0.5  # between looks; each is twice as long as the one before
# Nobody is to be ended by these but the driver, in order. What a line starts (Ray's servers) inherits the mask.
ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGINT})
# What Ray starts on a line has these blocked from its first instruction on, until it handles them.
BLOCKED_SIGNALS = ENDING_SIGNALS | stacks.HELD_BACK


class NoAnswer(TimeoutError):
    """A call did not return in time; it may still be under way."""


class Lines:
    """Threads that make one call at a time each; as many as calls are under way at once, and none of them ever ends.

    The kernel ends Ray's servers when the thread that has started them ends.
    """

    def __init__(self) -> None:
        self._idle: deque[_Line] = deque()
        self._num_busy = 0
        self._lock = threading.Lock()
        self.is_library_lost = False  # its own exit handlers would wait for ever, or for long

    @property
    def are_stuck(self) -> bool:
        """Whether calls are under way that nobody waits for any longer; asked when all others have returned."""
        return self._num_busy > 0

    def begin(self, what: str, call: Callable[[], T]) -> Awaited[T]:
        """Have the call made; ``what`` names it in errors."""
        try:
            line = self._idle.pop()
        except IndexError:
            line = _Line(self)
        with self._lock:
            self._num_busy += 1
        answer = Awaited[T](what)
        line.calls.put((answer, call))
        return answer

    def call(self, what: str, call: Callable[[], T], *, limit_s: float, look: Callable[[], None] | None = None) -> T:
        """The call's result; arguments and errors are those of :meth:`begin` and :meth:`Awaited.within`."""
        return self.begin(what, call).within(limit_s, look=look)

    def release(self, line: _Line) -> None:
        """Take back a line whose call has returned."""
        with self._lock:
            self._num_busy -= 1
        self._idle.append(line)


class Awaited(Generic[T]):
    """What becomes of a call that is under way."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.reply: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def within(self, limit_s: float, *, look: Callable[[], None] | None = None) -> T:
        """The call's result, or what it raises; to be asked once.

        Args:
            limit_s: seconds that this process itself has run; while it is stopped (Ctrl-Z), none pass.
            look: done now and then; what it raises ends the wait.

        Raises:
            NoAnswer: the limit has passed.
        """
        left_s, longest_s = limit_s, FIRST_SLICE_S
        while True:
            slice_s = min(longest_s, max(left_s, 0.001))  # the clock goes on while a process is stopped
            try:
                is_result, value = self.reply.get(timeout=slice_s)
                break
            except Empty:
                left_s, longest_s = left_s - slice_s, min(2 * longest_s, SLICE_S)
            if look is not None:
                look()
            if left_s <= 0:
                raise NoAnswer(f"no answer to {self.what} within {limit_s:g} s")
        if is_result:
            result: T = value
            return result
        try:
            raise value
        finally:
            del value  # the traceback holds this frame


class _Line:
    def __init__(self, lines: Lines) -> None:
        self.calls: SimpleQueue[tuple[Awaited[Any], Callable[[], Any]]] = SimpleQueue()
        self._lines = lines
        threading.Thread(target=self._work, name="bounded calls", daemon=True).start()

    def _work(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
        while True:
            answer, call = self.calls.get()
            try:
                reply = True, call()
            except BaseException as error:  # noqa: BLE001 (raised again where the result is waited for)
                reply = False, error
            self._lines.release(self)
            answer.reply.put(reply)
            del answer, call, reply  # a line at rest holds neither arguments nor results


LINES = Lines()
