"""Make calls that may never return on threads that their callers can abandon.

A wait for such a call has a deadline and reacts to Ctrl-C. The threads are daemons, so that a call that hangs does not
delay the interpreter's exit.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")
Check: TypeAlias = Callable[[], None]

MAX_THREADS = 128  # per set; if this many calls hang forever, further calls wait for a thread
FIRST_SLICE_S, SLICE_S = 0.02, 0.5  # between checks; each slice is twice as long as the previous one

# Only the driver acts on these. Ray's servers inherit the signal mask of the thread that starts them.
ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGINT})
# Processes that Ray starts have these blocked until they install handlers; SIGUSR1 prints stacks.
BLOCKED_SIGNALS = ENDING_SIGNALS | {signal.SIGUSR1}


class NoAnswer(TimeoutError):
    """A call did not return in time; it may still be running."""


class Abandoned(Exception):
    """The caller no longer waits for this call; raised inside the call by its check."""


class PendingCall(Generic[T]):
    """A call that runs on a thread or waits for one.

    An exception raised after the last wait has ended is logged once.
    """

    def __init__(self, what: str, *, has_check: bool = False) -> None:
        self.what, self._has_check = what, has_check
        self._over, self._lock = threading.Event(), threading.Lock()
        self._outcome: tuple[bool, Any] | None = None  # (is a result, result or exception), until it is taken
        self._has_begun = self._is_abandoned = self._is_logged = False
        self._left_at: float | None = None
        self._late_level = logging.DEBUG

    @property
    def is_over(self) -> bool:
        """Whether the call has returned or raised."""
        return self._over.is_set()

    @property
    def is_abandoned(self) -> bool:
        """True once the call has been abandoned, even if it has returned since."""
        return self._is_abandoned

    def wait(self, timeout_s: float) -> bool:
        """Wait until the call is over; return whether it is. :meth:`result` can still return its outcome."""
        return self._over.wait(timeout_s)

    def result(self, limit_s: float, *, check: Check | None = None) -> T:
        """Return the call's result or raise its exception; the outcome can be taken once.

        Args:
            limit_s: limit in seconds, not counting time during which this process is stopped (Ctrl-Z).
            check: called periodically; an exception that it raises ends the wait.

        Raises:
            NoAnswer: the limit has passed. The call continues and may be waited for again.
        """
        self._left_at = None
        try:
            self._wait(limit_s, check)
        except BaseException as error:
            self._leave(logging.INFO if isinstance(error, NoAnswer) else logging.DEBUG)
            raise
        with self._lock:
            outcome, self._outcome = self._outcome, None
        assert outcome is not None, f"the outcome of {self.what} was already taken"
        is_result, value = outcome
        del outcome
        if is_result:
            result: T = value
            return result
        try:
            raise value
        finally:
            del value  # the traceback holds this frame

    def abandon(self) -> None:
        """Stop waiting for the call permanently. A check ends it; without one, it is skipped if not begun."""
        self._is_abandoned = True
        if self._left_at is None:
            self._leave(logging.DEBUG)

    def check(self) -> None:
        """Raise :class:`Abandoned` if the call has been abandoned; used inside the call."""
        if self._is_abandoned:
            raise Abandoned(self.what)

    def _wait(self, limit_s: float, check: Check | None) -> None:
        left_s, longest_s = limit_s, FIRST_SLICE_S
        while True:
            slice_s = min(longest_s, max(left_s, 0.001))  # the clock continues while a process is stopped
            if self._over.wait(slice_s):
                return
            left_s, longest_s = left_s - slice_s, min(2 * longest_s, SLICE_S)
            if check is not None:
                check()
            if left_s <= 0:
                why = "" if self._has_begun else "; it has not begun, because every thread has a call that hangs"
                raise NoAnswer(f"no answer to {self.what} within {limit_s:g} s{why}")

    def _leave(self, late_level: int) -> None:
        if not self._has_begun:
            self._is_abandoned = True
        self._left_at, self._late_level = time.monotonic(), late_level
        self._log_late()

    def begin(self) -> None:
        """Record that a thread starts the call. A call with a check is always made, because it may have to clean up.

        Raises:
            Abandoned: the call was abandoned and has no check.
        """
        if not self._has_check:
            self.check()
        self._has_begun = True

    def keep(self, *, is_result: bool, value: Any) -> None:
        """Record the outcome; called by the thread that has made the call, before :meth:`finish`."""
        self._outcome = is_result, value

    def finish(self) -> None:
        """Wake the caller, which may now take the outcome."""
        self._over.set()
        self._log_late()

    def _log_late(self) -> None:
        with self._lock:
            if self._left_at is None or self._outcome is None or self._is_logged:
                return
            is_result, error = self._outcome
            if is_result or isinstance(error, Abandoned):
                return
            self._is_logged = True
        late_s = time.monotonic() - self._left_at
        kind = type(error).__name__
        log.log(
            self._late_level,
            "%s failed %.1f s after its caller stopped waiting: %s: %s",
            self.what,
            late_s,
            kind,
            error,
        )


class CallThreads:
    """A set of threads; each makes one call at a time, in order of arrival.

    Idle threads are reused. Threads never end: the kernel ends Ray's servers when the thread that started them ends.

    Args:
        name: prefix of each thread's name; the name of its current call follows.
        max_threads: above this number, calls wait for a thread, within their own deadlines.
        blocked_signals: blocked in the threads and in the processes that the calls start.
    """

    def __init__(
        self,
        name: str = "call",
        *,
        max_threads: int = MAX_THREADS,
        blocked_signals: frozenset[signal.Signals] = frozenset(),
    ) -> None:
        self._name, self._max_threads, self._blocked_signals = name, max_threads, blocked_signals
        self._calls: SimpleQueue[tuple[PendingCall[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._num_threads = 0
        self._open: set[PendingCall[Any]] = set()
        self.is_library_lost = False  # exit handlers of the called library would hang, or wait for long

    @property
    def is_busy(self) -> bool:
        """True while a call runs or waits for a thread."""
        return bool(self._open)

    def abandoned(self) -> list[str]:
        """Return the names of the calls that were abandoned and are still running."""
        with self._lock:
            return [pending.what for pending in self._open if pending.is_abandoned]

    def begin(self, what: str, call: Callable[[], T], *, pending: PendingCall[T] | None = None) -> PendingCall[T]:
        """Start a call on a thread; ``what`` names it in errors."""
        pending = PendingCall[T](what) if pending is None else pending
        with self._lock:
            if self._num_threads <= len(self._open) and self._num_threads < self._max_threads:
                threading.Thread(target=self._work, name=f"{self._name}: idle", daemon=True).start()
                self._num_threads += 1
            self._open.add(pending)
        self._calls.put((pending, call))
        return pending

    def begin_with_check(self, what: str, call: Callable[[Check], T]) -> PendingCall[T]:
        """Start a call that takes a check, calls it periodically, and ends with the exception that it raises."""
        pending = PendingCall[T](what, has_check=True)
        return self.begin(what, lambda: call(pending.check), pending=pending)

    def call(self, what: str, call: Callable[[], T], *, limit_s: float, check: Check | None = None) -> T:
        """Return a call's result; abandon the call if the wait ends before it returns.

        Arguments and errors are those of :meth:`begin` and :meth:`PendingCall.result`.
        """
        pending = self.begin(what, call)
        try:
            return pending.result(limit_s, check=check)
        finally:
            pending.abandon()

    def _work(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._blocked_signals)
        thread = threading.current_thread()
        while True:
            pending, call = self._calls.get()
            thread.name = f"{self._name}: {pending.what}"
            try:
                pending.begin()
                is_result, value = True, call()
            except BaseException as error:  # noqa: BLE001 (raised again in the thread that waits for the result)
                is_result, value = False, error
            pending.keep(is_result=is_result, value=value)
            del call, value  # before the caller continues, so that only the caller holds them
            self._close(pending)
            pending.finish()
            thread.name = f"{self._name}: idle"
            del pending

    def _close(self, pending: PendingCall[Any]) -> None:
        with self._lock:
            self._open.remove(pending)


class RayThreads(CallThreads):
    """Threads for calls into Ray, whose exit handlers may hang if a call hangs."""

    def __init__(self) -> None:
        super().__init__("Ray call", blocked_signals=BLOCKED_SIGNALS)
