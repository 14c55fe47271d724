"""The ranks that share one engine. They must make the same calls at each of its steps; otherwise they hang."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from verl_like.context import current
from verl_like.controller.errors import Interrupt
from verl_like.workers.setup import WorkerSetup

T = TypeVar("T")

AGREE_EVERY_STEPS = 32  # a gloo round takes a few milliseconds, as does a step of a small model


class EngineRanks:
    """Synchronises decisions between the ranks of one engine; all of them make the same calls."""

    def __init__(self, setup: WorkerSetup) -> None:
        size = setup.config.rollout.tensor_parallel_size
        self.size, self.is_first = size, setup.rank % size == 0
        self._first = setup.rank - setup.rank % size
        self._group: dist.ProcessGroup | None = None
        self._calls = 0
        timeout = timedelta(seconds=setup.config.trainer.stage_timeout_s)
        for first in range(0, setup.world_size, size) if size > 1 else ():
            group = dist.new_group(list(range(first, first + size)), timeout=timeout, backend="gloo")  # on every rank
            if first == self._first:
                self._group = group

    def are_interrupted(self) -> bool:
        """Return whether Ctrl-C was pressed. Call it once per step."""
        if self._group is None:
            return current(Interrupt).is_set()
        self._calls += 1
        if self._calls % AGREE_EVERY_STEPS != 1:
            return False
        is_interrupted = torch.tensor(int(current(Interrupt).is_set()))
        dist.all_reduce(is_interrupted, op=dist.ReduceOp.MAX, group=self._group)
        return bool(is_interrupted)

    def shared(self, value: T) -> T:
        """Return the first rank's value, which must be picklable."""
        if self._group is None:
            return value
        of_first = [value]
        dist.broadcast_object_list(of_first, src=self._first, group=self._group)
        return of_first[0]

    def from_first(self, number: int) -> int:
        """Return the number that the first rank passed."""
        if self._group is None:
            return number
        of_first = torch.tensor(number)
        dist.broadcast(of_first, src=self._first, group=self._group)
        return int(of_first)


class Queue:
    """Hands out numbers from 0 on, each to one engine, in the order of requests.

    Each ``open`` restarts it, on all ranks. A store thread of rank 0's process counts the numbers, so it does not wait
    for other work of that process.

    Args:
        store: store of the process group.
    """

    def __init__(self, store: Store, ranks: EngineRanks) -> None:
        self._store, self._ranks = PrefixStore("rollout queue", store), ranks
        self._opened, self._length, self._is_empty = 0, 0, True

    def open(self, length: int) -> None:
        """Start a queue of ``length`` numbers."""
        self._opened += 1
        self._length, self._is_empty = length, length == 0

    def take(self, wanted: int) -> range:
        """Return the next ``wanted`` numbers, or as many as are left."""
        if self._is_empty or not wanted:
            return range(0)
        end = self._ranks.from_first(self._store.add(str(self._opened), wanted) if self._ranks.is_first else 0)
        self._is_empty = end >= self._length
        return range(min(end - wanted, self._length), min(end, self._length))
