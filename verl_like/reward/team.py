"""The scorer processes of one node: samples are dealt to whichever is free."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from types import TracebackType

from verl_like.reward.messages import Outcome, Sample, Task
from verl_like.reward.sandbox import MAX_CHUNK, ScorerProcess, Spares

PIECES_PER_PROCESS = 4  # so that a slow sample holds up few others


class ScorerTeam:
    """``num_processes`` scorer processes and a warm spare.

    Raises:
        ValueError: the functions cannot be loaded or called; the message says why.
        RuntimeError: a process died, or took too long, before they were loaded.
    """

    def __init__(self, task: Task, num_processes: int) -> None:
        with ExitStack() as started:
            self._spares = Spares(task, num_processes)
            started.callback(self._spares.close)
            self._processes: list[ScorerProcess] = []
            for _ in range(num_processes):
                self._processes.append(ScorerProcess(self._spares))
                started.callback(self._processes[-1].close)
            self._executor = ThreadPoolExecutor(num_processes, thread_name_prefix="scorer")
            started.callback(self._stop)
            self._started = started.pop_all()
        self._free: SimpleQueue[ScorerProcess] = SimpleQueue()
        for process in self._processes:
            self._free.put(process)

    def score(self, samples: Sequence[Sample]) -> list[Outcome]:
        """One outcome per sample, in order; may be called by several threads at once."""
        size = min(MAX_CHUNK, -(-len(samples) // (PIECES_PER_PROCESS * len(self._processes))) or 1)
        pieces = [samples[i : i + size] for i in range(0, len(samples), size)]
        return list(itertools.chain.from_iterable(self._executor.map(self._piece, pieces)))

    def _piece(self, samples: Sequence[Sample]) -> list[Outcome]:
        process = self._free.get()
        try:
            return process.score(samples)
        finally:
            self._free.put(process)

    def _stop(self) -> None:
        """End what the threads have under way, whatever it is: Ctrl-C does not wait for deadlines."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._spares.close()
        for process in self._processes:
            process.interrupt()
        self._executor.shutdown(wait=True)

    def close(self) -> None:
        """Kill all processes; none is left when this returns."""
        self._started.close()

    def __enter__(self) -> ScorerTeam:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
