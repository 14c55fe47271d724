"""Simulated ranks in two pools: a trainer of the schedule async, and engines in separate workers.

Each engine is a group of one rank with a separate stream, as in a run. A few shared processes answer all of them.
"""

from __future__ import annotations

import math
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray

from benchmarks._idle import TIMEOUT_S, IdleRollout, idle_stack, idle_trainer, step_config
from benchmarks._simulated import PROCESSES, RANKS_PER_NODE, ROOT, ROWS_PER_RANK, SimulatedGroup, response_lengths
from verl_like.backends.base import OnRunning, Sampling
from verl_like.config.schema import ClusterConfig
from verl_like.controller.placement import ray_cluster
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.controller.transport import Direct
from verl_like.controller.worker import NUM_THREADS, WorkerHost
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import Array, DataProto
from verl_like.training.async_trainer import AsyncTrainer
from verl_like.workers.engine_members import EngineMembers
from verl_like.workers.engine_pool import EnginePool
from verl_like.workers.group_blocks import PROMPT_COLUMNS
from verl_like.workers.messages import Event, SyncReport
from verl_like.workers.transfer import Meeting

MAX_STREAMS = 512  # of a process, each on a thread that waits
BLOCK_BYTES = 256 * 1024
EngineProcess = ray.remote(concurrency_groups={**NUM_THREADS, "engine": MAX_STREAMS}, enable_task_events=False)(
    WorkerHost
)


def build_roles(lengths: Array) -> dict[str, Any]:
    """Return the role of a process that answers for many engines."""
    return {"ServedEngineRole": IdleEngines(lengths)}


class IdleEngines:
    """Has the interface of ServedEngineRole: every prompt finishes at once, on the stream of any of the engines."""

    def __init__(self, lengths: Array) -> None:
        self._rollout = IdleRollout(lengths, BLOCK_BYTES, ranks=1)
        self._streams: list[queue.SimpleQueue[Any]] = []
        self._lock = threading.Lock()
        self._num_admitted = 0
        self._events: deque[Event] = deque()

    def join_transfer(self, meeting: Meeting, rank: int) -> None:
        """Take part in no transfer."""

    def serve(self, rows: RemoteRows) -> Iterator[Facts | DataProto]:
        stream: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            self._streams.append(stream)
        while True:
            facts, table = stream.get()
            yield facts
            yield table

    def admit(
        self, number: int, rows: RemoteRows, n: int, sampling: Sampling, step: int, version: int, first_sample: int
    ) -> None:
        prompts = rows.fetch(list(PROMPT_COLUMNS), timeout_s=TIMEOUT_S)
        facts, table = self._rollout.block(prompts, np.arange(len(prompts)), n, version)
        size = len(facts["sample"])
        facts |= {"admission": np.full(size, number), "is_under_pressure": np.zeros(size, bool)}
        with self._lock:
            self._num_admitted += 1
            self._streams[self._num_admitted % len(self._streams)].put((facts, table))
            self._events.append(Event(self._num_admitted, "admit", number, tuple(rows.rows.tolist())))

    def receive(self, on_running: OnRunning) -> SyncReport:
        with self._lock:
            events = [self._events.popleft()] if self._events else []
        return SyncReport(version=0, num_bytes=0, seconds=1.0, pause_s=1.0, events=[*events, Event(0, "sync", 0)])


class _EngineProcesses(WorkerGroup):
    """The processes that answer for all engines."""

    def _started(self, kind: Any, rank: int, **options: Any) -> Any:
        return super()._started(EngineProcess, rank, **options)

    @property
    def handles(self) -> list[Any]:
        return self._actors


class SimulatedEngine(WorkerGroup):
    """An engine of one rank, for which a shared process answers."""

    def __init__(self, name: str, process: Any) -> None:
        self.name, self.timeout_s = name, TIMEOUT_S
        self._actors, self._building, self._aggregators = [process], {}, []
        self._direct = self._transport = Direct(name, {0: process})


class _NoHosts:
    """No engine is lost, and none is added."""

    num_free = 0

    def start(self) -> WorkerGroup:
        raise AssertionError("a simulated engine was lost")

    def end(self, group: WorkerGroup) -> None:
        raise AssertionError("a simulated engine was lost")


@contextmanager
def simulated_pools(trainer_ranks: int, engines: int) -> Iterator[AsyncTrainer]:
    """Yield a trainer of the schedule async over so many ranks and engines, with equally many rows for each."""
    rows = (trainer_ranks + engines) * ROWS_PER_RANK
    lengths = response_lengths(rows)
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    config = step_config(rows)
    config.trainer.schedule = "async"
    with ray_cluster(ClusterConfig(object_store_memory_gib=6.0), "bench"), tempfile.TemporaryDirectory() as folder:

        def started(kind: type[WorkerGroup], name: str, size: int) -> Any:
            return kind(name, world_size=size, placement=None, env=environment, timeout_s=TIMEOUT_S)

        workers: SimulatedGroup = started(SimulatedGroup, "worker", PROCESSES)
        advantages: WorkerGroup = started(WorkerGroup, "advantages", 1)
        answering: _EngineProcesses = started(_EngineProcesses, "engines", PROCESSES)
        for group in (workers, advantages):
            group.build("benchmarks._idle:build_roles", lambda rank: (lengths, BLOCK_BYTES, 1), timeout_s=TIMEOUT_S)
        answering.build("benchmarks._simulated_pools:build_roles", lambda rank: (lengths,), timeout_s=TIMEOUT_S)
        for group in (workers, advantages, answering):
            group.wait_built(timeout_s=TIMEOUT_S)
        workers.pretend(trainer_ranks)
        members = EngineMembers(
            _NoHosts(),
            [SimulatedEngine(f"engine {number}", answering.handles[number % PROCESSES]) for number in range(engines)],
            node=-1,
            trainer=workers,
            ranks_per_engine=1,
            max_lost=0,
            start_timeout_s=TIMEOUT_S,
        )
        pool = EnginePool(members, workers, config.rollout, on_running=OnRunning.KEEP, assigns_by_queue=True)
        stack = idle_stack(
            config,
            workers=workers,
            advantages=advantages,
            num_scorers=PROCESSES,
            num_nodes=math.ceil(trainer_ranks / RANKS_PER_NODE),
            rollout=pool,
        )
        trainer: AsyncTrainer = idle_trainer(AsyncTrainer, config, Path(folder), stack)
        trainer.start()
        try:
            yield trainer
        finally:
            pool.close()
