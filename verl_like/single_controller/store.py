"""What the object store holds and what went through it: the counters behind the ``store/`` metrics."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from ray._private import internal_api, worker
from ray._private.state import state

STATS_TIMEOUT_S = 10.0  # a raylet answers in milliseconds


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
    """What a process answers the driver with; :func:`verl_like.single_controller.wait.wait` opens it.

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


def store_use() -> StoreUse:
    """Ask the cluster. Copies that a node pulls from another one count as created there."""
    # Ray has no public call for this (2.60); `ray memory --stats-only` uses the same one.
    stats = internal_api.get_memory_info_reply(state, timeout_seconds=STATS_TIMEOUT_S).store_stats
    return StoreUse(
        capacity=stats.object_store_bytes_avail,
        used=stats.object_store_bytes_used,
        created=stats.cumulative_created_bytes,
        spilled=stats.spilled_bytes_total,
    )


def live_references() -> int:
    """Object references this process holds or has handed to running calls."""
    return len(worker.global_worker.core_worker.get_all_reference_counts())


def inlined_bytes() -> int:
    """Bytes of results below Ray's inline limit (100 KiB) that this process holds itself, outside the store."""
    size: int = worker.global_worker.core_worker.get_local_memory_store_bytes_used()
    return size
