"""Ctrl-C, SIGTERM and a closing terminal: the run ends cleanly and in time, or reports that it could not."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from verl_like.context import current
from verl_like.controller.errors import Interrupt, OutOfGrace
from verl_like.telemetry import stacks
from verl_like.telemetry.ledger import Ledger

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
JOIN_S = 5.0  # the thread is notified and has nothing left to do
ECHO_S = 1.0  # timeout, make and batch systems signal a run and then its whole group: one request arrives twice
MAX_TEARDOWN_S = 15.0  # part of the grace period for ending processes
OVER = 0  # not a signal number


@contextmanager
def ends_cleanly(grace_s: float, last_checkpoint: Callable[[], str]) -> Iterator[None]:
    """Let the first signal end the run within ``grace_s``, and a later one that is not an echo end it now.

    Args:
        last_checkpoint: returns a sentence on the checkpoint to continue from, for a run that does not end in time.
    """
    end = _End(grace_s, last_checkpoint)
    # nohup makes a run ignore SIGHUP, so a closed terminal must not end it.
    caught = [signum for signum in SIGNALS if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN]
    handlers: dict[signal.Signals, Any] = {signum: signal.signal(signum, end.on_signal) for signum in caught}
    wakeup = signal.set_wakeup_fd(end.woken_by, warn_on_full_buffer=False)
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:  # in a script that calls us, which it would end
        handlers[signal.SIGUSR1] = signal.SIG_DFL
        stacks.survive()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        end.close()
        current(Interrupt).clear()


class _End:
    """Handles the signals, with a thread that acts even if the driver hangs in a library."""

    def __init__(self, grace_s: float, last_checkpoint: Callable[[], str]) -> None:
        self._grace_s, self._last_checkpoint = grace_s, last_checkpoint
        self._teardown_s = min(MAX_TEARDOWN_S, grace_s / 2)
        self._heard = -ECHO_S
        self._wake, self.woken_by = os.pipe()
        os.set_blocking(self.woken_by, False)
        self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self.woken_by, bytes([OVER]))
        self._thread.join(JOIN_S)
        os.close(self._wake)
        os.close(self.woken_by)

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal in the main thread, as soon as that runs Python code."""
        before, self._heard = self._heard, time.monotonic()
        if not current(Interrupt).is_set():
            current(Interrupt).set(work_s=self._grace_s - self._teardown_s)
            _say_above(f"stopping cleanly, which may take up to {self._grace_s:g} s; repeat the signal to stop at once")
        elif self._heard - before >= ECHO_S:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        """Read signal numbers, which the interpreter writes on arrival, and enforce the deadline.

        This is a thread, because a main thread that hangs in a library never runs its handlers.
        """
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        heard: float | None = None
        deadline: float | None = None
        is_insisted = False
        while True:
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            ready = poll.poll(None if left_s is None else 1000 * left_s)
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                self._give_up(is_insisted=is_insisted)
            for descriptor in (descriptor for descriptor, _ in ready if descriptor != self._wake):
                _close_output(descriptor)
                poll.unregister(descriptor)
            for number in os.read(self._wake, 64) if any(found == self._wake for found, _ in ready) else b"":
                if number == OVER:
                    return
                if number == signal.SIGUSR1:
                    stacks.print_to()
                if number not in SIGNALS:
                    continue
                if heard is None:
                    deadline = now + self._grace_s
                    for output in (1, 2):  # reported when its reader is gone: Ctrl-C ends the tee of a pipe first
                        poll.register(output, 0)
                elif now - heard >= ECHO_S:
                    assert deadline is not None
                    deadline, is_insisted = min(deadline, now + self._teardown_s), True
                heard = now

    def _give_up(self, *, is_insisted: bool) -> None:
        """End the process and all its child processes."""
        stage = "start or end" if current(Ledger).stage == "idle" else current(Ledger).stage
        _say(f"error: {OutOfGrace(stage)} {self._last_checkpoint()}")
        os._exit(130 if is_insisted else 1)


def _say_above(text: str) -> None:
    """Print a line above a live display, which a bare line would break, or a bare line if there is none."""
    stderr = sys.stderr
    if not hasattr(stderr, "rich_proxied_file"):
        _say(f"\n{text}")
        return

    def write() -> None:
        with suppress(OSError):
            print(text, file=stderr, flush=True)

    # In a thread, which waits for the display's lock: the signal may have arrived during a redraw.
    threading.Thread(target=write, name="say", daemon=True).start()


def _say(text: str) -> None:
    """Write a message to stderr without print, which fails if the signal interrupted another print."""
    with suppress(OSError):  # stderr has no reader
        os.write(2, f"{text}\n".encode())


def _close_output(descriptor: int) -> None:
    """Redirect an output to /dev/null: a clean end must not fail because its reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
