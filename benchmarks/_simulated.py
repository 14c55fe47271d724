"""Measure the driver's cost of a step over groups of up to a thousand simulated ranks.

The driver code is the real one (``PPOTrainer.step``: facades, worker groups, batches, partition, waits). A simulated
rank or aggregator is only a name: its calls are real Ray calls with the arguments and results of that rank or node, and
a few shared processes that do no arithmetic answer them. Only the driver's CPU seconds are meaningful, because those
processes compete for the cores of this machine.
"""

from __future__ import annotations

import gc
import math
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import _workload as workload
from benchmarks._idle import TIMEOUT_S, idle_stack, idle_trainer, step_config
from verl_like.config.schema import ClusterConfig
from verl_like.controller import ray_calls
from verl_like.controller.placement import ray_cluster
from verl_like.controller.store import store_use
from verl_like.controller.transport import Direct
from verl_like.controller.tree import LATE_S, Branch, Tree
from verl_like.controller.worker_group import MAX_BRANCHES, WorkerGroup
from verl_like.protocol import Array
from verl_like.training.ppo import PPOTrainer
from verl_like.training.rollout_trainer import RolloutTrainer

ROOT = Path(__file__).parents[1]
RANKS_PER_NODE = 8
ROWS_PER_RANK = 64
RESPONSE_TOKENS = 512  # on average: a rank's column is 128 KiB, so results go to the store as they do on a cluster
PROCESSES = 2
SEED = 0
WARM_UP_STEPS, STEPS = 1, 3
POLL_EVERY_S = 0.05
MEMORY_EVERY_S = 0.5  # a sample takes the driver a third of a millisecond, which is measured too


class SimulatedGroup(WorkerGroup):
    """A group that, once started, acts like one of ``ranks`` ranks; its few processes serve all of them."""

    def pretend(self, ranks: int) -> None:
        processes = self._actors
        # neighbours share a process
        self._actors = [processes[rank // RANKS_PER_NODE % len(processes)] for rank in range(ranks)]
        self._direct = self._transport = Direct(self.name, dict(enumerate(self._actors)))
        nodes = [range(first, first + RANKS_PER_NODE) for first in range(0, ranks, RANKS_PER_NODE)]
        if len(nodes) > 1:
            self.use_tree([range(ranks)] * len(processes), timeout_s=TIMEOUT_S)
            handles = [branch.handle for branch in self._aggregators]
            branches = [
                Branch(f"the aggregator of node {i}", handles[i % len(handles)], [node]) for i, node in enumerate(nodes)
            ]
            top = branches if len(branches) <= MAX_BRANCHES else self._of_branches(branches)
            self._transport = Tree(top, late_s=2 * LATE_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCost:
    """Cost of a step for the driver: medians, except ``growth_mb`` (over all steps) and ``references`` (maximum).

    Args:
        references: to blocks and answers that the driver held at once.
        store_mb: added to the store.
    """

    driver_s: float
    wall_s: float
    growth_mb: float
    references: int
    store_mb: float


def response_lengths(rows: int) -> Array:
    """Return the response tokens of each row, [rows]."""
    return workload.lengths(rows, SEED) * RESPONSE_TOKENS // workload.MEAN_RESPONSE_LENGTH


@contextmanager
def simulated(ranks: int) -> Iterator[PPOTrainer]:
    """Yield a trainer over so many ranks, with equally many rows for each."""
    rows = ranks * ROWS_PER_RANK
    lengths, config = response_lengths(rows), step_config(rows)
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with ray_cluster(ClusterConfig(object_store_memory_gib=6.0), "bench"), tempfile.TemporaryDirectory() as folder:
        workers = SimulatedGroup("worker", world_size=PROCESSES, placement=None, env=environment, timeout_s=TIMEOUT_S)
        advantages = WorkerGroup("advantages", world_size=1, placement=None, env=environment, timeout_s=TIMEOUT_S)
        for group in (workers, advantages):
            group.build("benchmarks._idle:build_roles", lambda rank: (lengths, 256 * 1024, ranks), timeout_s=TIMEOUT_S)
            group.wait_built(timeout_s=TIMEOUT_S)
        workers.pretend(ranks)
        stack = idle_stack(
            config,
            workers=workers,
            advantages=advantages,
            num_scorers=PROCESSES,
            num_nodes=math.ceil(ranks / RANKS_PER_NODE),
        )
        trainer = idle_trainer(PPOTrainer, config, Path(folder), stack)
        trainer.version = 0
        yield trainer


def step_cost(ranks: int) -> StepCost:
    """Measure some synchronous steps over so many ranks."""
    return cost_of(simulated(ranks))


def cost_of(opened: AbstractContextManager[RolloutTrainer]) -> StepCost:
    """Measure some steps of a trainer, after one that is not measured."""
    with opened as trainer:
        for step in range(1, WARM_UP_STEPS + 1):
            trainer.step(step)
        gc.collect()
        cpu, wall, stored = [], [], [_created_mb()]
        with workload.MemoryGrowth(sample_every_s=MEMORY_EVERY_S) as memory:
            for step in range(1, STEPS + 1):
                cpu_before, wall_before = time.process_time(), time.perf_counter()
                trainer.step(step)
                cpu.append(time.process_time() - cpu_before)
                wall.append(time.perf_counter() - wall_before)
                stored.append(_created_mb())
        return StepCost(
            driver_s=median(cpu),
            wall_s=median(wall),
            growth_mb=memory.mb,
            references=_most_references(trainer),
            store_mb=median(np.diff(stored)),
        )


def _created_mb() -> float:
    use = store_use()
    return float("nan") if use is None else use.created / 1e6


def _most_references(trainer: RolloutTrainer) -> int:
    """Count references in a separate step, since counting takes the driver's time."""
    counts, is_over = [0], threading.Event()

    def count() -> None:
        while not is_over.wait(POLL_EVERY_S):
            counts.append(ray_calls.num_references() or 0)

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    trainer.step(STEPS + 1)
    is_over.set()
    counter.join(timeout=10)
    return max(counts)
