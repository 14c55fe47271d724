"""Watchdog of a node without the driver; it keeps its reports until the driver requests them."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from verl_like.context import current
from verl_like.telemetry import stacks
from verl_like.telemetry.heartbeat import heartbeat_folder
from verl_like.telemetry.ledger import Ledger
from verl_like.watchdog.guard import watchdog
from verl_like.watchdog.starting import marked_by, run_folder


@dataclass(frozen=True, slots=True)
class Notice:
    """A report of the watchdog: a process that died (``who``), processes that hang, or a warning.

    Args:
        text: empty for a process that died before its first call; a notice of its death comes first.
    """

    text: str
    who: str = ""
    is_certain: bool = False
    is_warning: bool = False


class NodeWatchdog:
    """Watches the processes that write heartbeats into one folder of its node.

    Args:
        watched: names the folder, which belongs to this node alone.
        stalls: folder below which verdicts and stacks are written.
        floor_s: shortest deadline.
    """

    def __init__(self, watched: str, stalls: str, floor_s: float) -> None:
        stacks.listen()
        current(Ledger).rest("wait/driver")
        self._folder = heartbeat_folder(watched)
        self._notices: list[Notice] = []
        self._lock = threading.Lock()
        self._watching = ExitStack()
        self._watching.enter_context(
            watchdog(watched, Path(stalls), self, floor_s=floor_s, ends=False, who="the watchdog of this node")
        )

    def found(self) -> list[Notice]:
        """Return the notices since the last call."""
        with self._lock:
            notices, self._notices = self._notices, []
            return notices

    def stalled(self, text: str, *, is_certain: bool) -> None:
        with self._lock:
            self._notices.append(Notice(text, is_certain=is_certain))

    def noted(self, text: str) -> None:
        with self._lock:
            self._notices.append(Notice(text, is_warning=True))

    def died(self, who: str, text: str) -> None:
        with self._lock:
            self._notices.append(Notice(text, who=who))

    def died_at_start(self, who: str) -> None:
        with self._lock:
            self._notices.append(Notice("", who=who))

    def close(self) -> None:
        """Stop watching and end the run's remaining processes on this node; a stopped raylet does not end them."""
        self._watching.close()
        for pid in marked_by(run_folder(self._folder)):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
