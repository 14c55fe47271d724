"""What the object store holds and what went through it: the counters behind the ``store/`` metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verl_like.controller import ray_calls


class StoreCounters:
    """What this process did with the store and nobody else can count; for use by many threads."""

    def __init__(self) -> None:
        self._fetched_bytes, self._lock = 0, threading.Lock()

    def add_fetched(self, num_bytes: int) -> None:
        """Count bytes that were copied or read out of blocks."""
        with self._lock:
            self._fetched_bytes += num_bytes

    def take(self) -> int:
        """Bytes fetched since the last call."""
        with self._lock:
            fetched, self._fetched_bytes = self._fetched_bytes, 0
            return fetched


STORE = StoreCounters()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a process answers the driver with; :func:`verl_like.controller.wait.wait` opens it.

    Args:
        value: the result.
        fetched_bytes: by this process since its last reply; they are added to the driver's own ``STORE``.
    """

    value: Any
    fetched_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreUse:
    """Ray's own figures of all nodes together, in bytes; ``created`` and ``spilled`` only grow."""

    capacity: int
    used: int
    created: int
    spilled: int


def asking_store_use() -> Callable[[], StoreUse | None]:
    """Ask the cluster; what is returned gives its answer, or None where it does not answer soon.

    Copies that a node pulls from another one count as created there.
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
    """The cluster's answer."""
    return asking_store_use()()
