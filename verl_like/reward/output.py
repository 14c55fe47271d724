"""What scorer processes print: passed on up to a limit, counted beyond it, and its end kept for messages.

A function that prints for each sample fills a disk otherwise, in the logs of the cluster several times over.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from queue import SimpleQueue

MAX_PRINTED = 1 << 20  # bytes of one scorer process that are passed on
MAX_PRINTED_IN_ALL = 16 << 20  # of all that the processes of a team and their successors print
MAX_LAST_WORDS = 4096  # bytes
FLUSH_TIMEOUT_S = 1.0
_CHUNK = 1 << 16

log = logging.getLogger(__name__)


class OutputBudget:
    """How much the scorer processes of a team may still print; for use by several threads."""

    def __init__(self) -> None:
        self._left, self._is_reported = MAX_PRINTED_IN_ALL, False
        self._lock = threading.Lock()

    def share(self) -> int:
        """Bytes that a process that starts now may have passed on."""
        return min(MAX_PRINTED, self._left)

    def take(self, num_passed_on: int) -> None:
        """Count what a process that has ended had passed on."""
        with self._lock:
            self._left = max(0, self._left - num_passed_on)
            is_news, self._is_reported = not self._left and not self._is_reported, self._is_reported or not self._left
        if is_news:
            log.warning(
                "the scorer processes have printed %d MiB; what those that start from now on print is dropped, but "
                "for the end of what one prints that dies.",
                MAX_PRINTED_IN_ALL >> 20,
            )


class OutputFilter:
    """Empties the pipe that a scorer process prints into, whoever reads what is passed on, and however slowly.

    Args:
        pipe_fd: does not block; ``log_fd`` may.
        max_printed: bytes that are passed on.
        name: of the process, for the line that reports that the rest is dropped.
    """

    def __init__(self, pipe_fd: int, log_fd: int, *, max_printed: int, name: str) -> None:
        self.pipe_fd, self._log_fd, self._max_printed, self._name = pipe_fd, log_fd, max_printed, name
        self.num_printed = self.num_passed_on = 0
        self._last_words = b""
        self._queue: SimpleQueue[bytes] = SimpleQueue()  # holds max_printed bytes at most
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def read(self) -> bool:
        """Take what the pipe holds now, a chunk of it; whether anybody is left who could print more."""
        try:
            chunk = os.read(self.pipe_fd, _CHUNK)
        except BlockingIOError:
            return True
        self._last_words = (self._last_words + chunk)[-MAX_LAST_WORDS:]
        passed_on = chunk[: self._max_printed - self.num_passed_on]
        self.num_printed += len(chunk)
        if passed_on:
            self.num_passed_on += len(passed_on)
            self._queue.put(passed_on)
        if len(passed_on) < len(chunk) and self.num_dropped == len(chunk) - len(passed_on) and self._max_printed:
            self._queue.put(f"\n[{self._name} has printed {self._max_printed} bytes; the rest is dropped]\n".encode())
        return bool(chunk)

    def has_more(self) -> bool:
        """Whether the pipe holds something now."""
        poll = select.poll()  # not select, which knows no number above 1023; the parent's are kept
        poll.register(self.pipe_fd, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))

    @property
    def num_dropped(self) -> int:
        return self.num_printed - self.num_passed_on

    def last_words(self) -> str:
        """The end of what was printed."""
        return self._last_words.decode(errors="replace").strip()

    def close(self) -> None:
        """Pass on what is left, for a second at most; what was dropped is reported."""
        if self.num_dropped and self._max_printed:
            self._queue.put(f"[{self._name} printed {self.num_printed} bytes, {self.num_dropped} dropped]\n".encode())
        self._queue.put(b"")
        self._writer.join(FLUSH_TIMEOUT_S)

    def _write(self) -> None:
        try:
            while chunk := self._queue.get():
                while chunk:
                    chunk = chunk[os.write(self._log_fd, chunk) :]
        except OSError:  # nobody reads any more; the queue's limit holds
            return
