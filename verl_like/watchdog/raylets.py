"""Detect raylets on this node that a signal has stopped: processes of the node then wait for one another.

The driver itself watches a raylet that it has started, and notices sooner. This module is for a cluster that was
joined, and for its other nodes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

import psutil

from verl_like.watchdog.processes import process_state

PROGRAM = "raylet"
STOPPED_S = 12.0  # longer than the driver waits for a raylet that it has started


class Raylets:
    """Raylets that have started the watched processes."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}
        self._stopped_since: dict[int, float] = {}
        self._reported: set[int] = set()

    def trouble(self, pids: Iterable[int], now: float) -> str:
        """Check the raylets above these processes.

        Returns:
            A sentence about a raylet that has been stopped for too long, once per stop; empty if there is none.
        """
        self._parents = {pid: self._parents.get(pid) or _parent(pid) for pid in pids}
        for raylet in set(self._parents.values()):
            state = process_state(raylet)
            if state is None or state.name != PROGRAM or not state.is_stopped:
                self._stopped_since.pop(raylet, None)
                self._reported.discard(raylet)
                continue
            seconds = now - self._stopped_since.setdefault(raylet, now)
            if seconds >= STOPPED_S and raylet not in self._reported:
                self._reported.add(raylet)
                return (
                    f"Ray's raylet (process {raylet} on {socket.gethostname()}) has been stopped for {seconds:.0f} s, "
                    f"and processes of this node can fetch and start nothing; kill -CONT {raylet} resumes it."
                )
        return ""

    def forget(self) -> None:
        """Reset the timers: the driver is stopped, and with it the processes that share its terminal."""
        self._stopped_since.clear()


def _parent(pid: int) -> int:
    try:
        return int(psutil.Process(pid).ppid())
    except psutil.Error:
        return 0
