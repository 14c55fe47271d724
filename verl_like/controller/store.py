"""Contents and traffic of the object store: the counters of the ``store/`` metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verl_like.controller import ray_calls


class StoreCounters:
    """Counts this process's own traffic with the store; thread-safe."""

    def __init__(self) -> None:
        self._fetched_bytes, self._lock = 0, threading.Lock()

    def add_fetched(self, num_bytes: int) -> None:
        """Count bytes that were copied or read from blocks."""
        with self._lock:
            self._fetched_bytes += num_bytes

    def take(self) -> int:
        """Return the bytes fetched since the last call."""
        with self._lock:
            fetched, self._fetched_bytes = self._fetched_bytes, 0
            return fetched


@dataclass(frozen=True, slots=True)
class Reply:
    """A process's reply to the driver; :func:`verl_like.controller.wait.wait` unpacks it.

    Args:
        value: the result.
        fetched_bytes: bytes fetched by this process since its last reply; they are added to the driver's counters.
    """

    value: Any
    fetched_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreUse:
    """Ray's own figures summed over all nodes, in bytes; ``created`` and ``spilled`` never decrease."""

    capacity: int
    used: int
    created: int
    spilled: int


def asking_store_use() -> Callable[[], StoreUse | None]:
    """Query the cluster; return a function that returns the answer, or None if it does not arrive in time.

    Copies that a node pulls from another node count as created there.
    """
    reply = ray_calls.asking_store_stats()

    def found() -> StoreUse | None:
        stats = reply()
        if stats is None:
            return None
        return StoreUse(
            capacity=stats.object_store_bytes_avail,
            used=stats.object_store_bytes_used,
            created=stats.cumulative_created_bytes,
            spilled=stats.spilled_bytes_total,
        )

    return found


def store_use() -> StoreUse | None:
    """Query the cluster and return its answer, or None if it does not arrive in time."""
    return asking_store_use()()
