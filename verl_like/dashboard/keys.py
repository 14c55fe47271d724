"""Keys that are pressed in the terminal, without the end of a line."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any


class TerminalKeys:
    """Reads single keys from standard input if it is a terminal; a context manager that restores the terminal.

    Ctrl-C still interrupts the process.
    """

    def __init__(self) -> None:
        self._number = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> TerminalKeys:
        if self._number is not None:
            self._before = termios.tcgetattr(self._number)
            tty.setcbreak(self._number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._number is not None:
            termios.tcsetattr(self._number, termios.TCSADRAIN, self._before)

    def pressed(self, timeout_s: float) -> str:
        """Wait for a key; return it, or an empty text if none was pressed in time."""
        if self._number is None:
            time.sleep(timeout_s)
            return ""
        ready, _, _ = select.select([self._number], [], [], timeout_s)
        if not ready:
            return ""
        read = os.read(self._number, 1)
        if not read:  # the terminal is gone
            self._number = None
        return read.decode("ascii", "replace")
