"""Limit the output of users' code: pass it on up to a limit, count the rest, and keep its end for messages.

Otherwise a function that prints for each sample would fill a disk, with several copies in the cluster's logs.
"""

from __future__ import annotations

import os
import select
import threading
from queue import SimpleQueue

MAX_LAST_OUTPUT = 4096  # bytes
FLUSH_TIMEOUT_S = 1.0
_CHUNK = 1 << 16


class OutputFilter:
    """Empties the pipe that processes print into, even if the log is read slowly or not at all.

    Args:
        pipe_fd: must be non-blocking; ``log_fd`` may block.
        max_printed: bytes that are passed on.
        name: of the process, for the line that reports that the rest is dropped.
    """

    def __init__(self, pipe_fd: int, log_fd: int, *, max_printed: int, name: str) -> None:
        self.pipe_fd, self._log_fd, self._max_printed, self._name = pipe_fd, log_fd, max_printed, name
        self.num_printed = self.num_passed_on = 0
        self._last_output = b""
        self._queue: SimpleQueue[bytes] = SimpleQueue()  # holds max_printed bytes at most
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def read(self) -> bool:
        """Read one chunk of the pipe; return False at its end, when no process can write to it any more."""
        try:
            chunk = os.read(self.pipe_fd, _CHUNK)
        except BlockingIOError:
            return True
        self._last_output = (self._last_output + chunk)[-MAX_LAST_OUTPUT:]
        passed_on = chunk[: self._max_printed - self.num_passed_on]
        self.num_printed += len(chunk)
        if passed_on:
            self.num_passed_on += len(passed_on)
            self._queue.put(passed_on)
        if len(passed_on) < len(chunk) and self.num_dropped == len(chunk) - len(passed_on) and self._max_printed:
            self._queue.put(f"\n[{self._name} has printed {self._max_printed} bytes; the rest is dropped]\n".encode())
        return bool(chunk)

    def has_more(self) -> bool:
        """Return whether the pipe contains data now."""
        poll = select.poll()  # select.select fails for descriptors above 1023
        poll.register(self.pipe_fd, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))

    @property
    def num_dropped(self) -> int:
        return self.num_printed - self.num_passed_on

    def last_output(self) -> str:
        """Return the end of the output."""
        return self._last_output.decode(errors="replace").strip()

    def close(self) -> None:
        """Pass on the rest within one second, and report how much was dropped."""
        if self.num_dropped and self._max_printed:
            self._queue.put(f"[{self._name} printed {self.num_printed} bytes, {self.num_dropped} dropped]\n".encode())
        self._queue.put(b"")
        self._writer.join(FLUSH_TIMEOUT_S)

    def _write(self) -> None:
        try:
            while chunk := self._queue.get():
                while chunk:
                    chunk = chunk[os.write(self._log_fd, chunk) :]
        except OSError:  # the log has no reader any more; the queue's limit holds
            return
