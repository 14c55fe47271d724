"""The driver's own cost of a step as the cluster grows: ``python -m benchmarks.controller_scaling``.

The real driver code (``PPOTrainer.step``: facades, worker groups, batches, partition, waits) over simulated groups of 8
to 1,024 ranks, eight to a node, and batches to match. A simulated rank or relay is a name: its calls are real Ray calls
with the arguments and results of that rank or node, answered by a few shared processes that do no arithmetic. The
driver's CPU seconds are what is measured, since those processes compete for the cores here. Prints one JSON object as
its last line.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import _workload as workload
from benchmarks._idle import TIMEOUT_S, idle_trainer, step_config
from verl_like.config.schema import ClusterConfig
from verl_like.protocol import Array
from verl_like.single_controller.placement import ray_cluster
from verl_like.single_controller.rank_calls import Ranks
from verl_like.single_controller.reach import ByNode, Direct
from verl_like.single_controller.worker_group import WorkerGroup

ROOT = Path(__file__).parents[1]
RANKS = (8, 64, 256, 1024)
RANKS_PER_NODE = 8
ROWS_PER_RANK = 64
RESPONSE_TOKENS = (
    512  # a rank's column is 128 KiB: above Ray's inline limit, so results go to the store as they do on a cluster
)
PROCESSES = 2
WARM_UP_STEPS, STEPS = 1, 3


class SimulatedGroup(WorkerGroup):
    """A group that after its start passes for one of ``ranks`` ranks, which its processes serve in turn."""

    def pretend(self, ranks: int) -> None:
        processes = self._actors
        # neighbours share a process
        self._actors = [processes[rank // RANKS_PER_NODE % len(processes)] for rank in range(ranks)]
        self._ranks = Ranks(self.name, dict(enumerate(self._actors)))
        self._direct = self._reach = Direct(self._ranks, timeout_s=TIMEOUT_S)
        nodes = [range(first, first + RANKS_PER_NODE) for first in range(0, ranks, RANKS_PER_NODE)]
        if len(nodes) > 1:
            self.relay([range(ranks)] * len(processes), timeout_s=TIMEOUT_S)
            relays = list(self._relays.values())
            served = [(self._ranks.only(of_node), relays[i % len(relays)]) for i, of_node in enumerate(nodes)]
            self._reach = ByNode(served, timeout_s=TIMEOUT_S)


def measure(ranks: int) -> dict[str, float]:
    """Median driver CPU seconds and wall seconds of a step, and the driver's memory over all steps."""
    rows = ranks * ROWS_PER_RANK
    lengths: Array = np.full(rows, RESPONSE_TOKENS)
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with ray_cluster(ClusterConfig(object_store_memory_gib=6.0), "bench"), tempfile.TemporaryDirectory() as folder:
        workers = SimulatedGroup("worker", world_size=PROCESSES, placement=None, env=environment, timeout_s=TIMEOUT_S)
        advantages = WorkerGroup("advantages", world_size=1, placement=None, env=environment, timeout_s=TIMEOUT_S)
        for group in (workers, advantages):
            group.build("benchmarks._idle:build_roles", lambda rank: (lengths, 256 * 1024), timeout_s=TIMEOUT_S)
            group.wait_built(timeout_s=TIMEOUT_S)
        workers.pretend(ranks)
        trainer = idle_trainer(
            step_config(rows), Path(folder), workers=workers, advantages=advantages, num_scorers=PROCESSES
        )
        trainer.version = 0
        for step in range(1, WARM_UP_STEPS + 1):
            trainer.step(step)
        gc.collect()
        cpu, wall = [], []
        with workload.MemoryGrowth() as memory:
            for step in range(1, STEPS + 1):
                cpu_before, wall_before = time.process_time(), time.perf_counter()
                trainer.step(step)
                cpu.append(time.process_time() - cpu_before)
                wall.append(time.perf_counter() - wall_before)
        return {"driver_s": median(cpu), "wall_s": median(wall), "driver_rss_growth_mb": memory.mb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    found = {ranks: measure(ranks) for ranks in parser.parse_args().ranks}
    ranks = sorted(found)
    exponent = (
        np.polyfit(np.log(ranks), np.log([found[n]["driver_s"] for n in ranks]), 1)[0] if len(ranks) > 1 else None
    )
    print(
        json.dumps(
            {
                "ranks": ranks,
                "rows_per_rank": ROWS_PER_RANK,
                **{
                    key: {str(n): round(found[n][key], 4) for n in ranks}
                    for key in ("driver_s", "wall_s", "driver_rss_growth_mb")
                },
                "exponent": exponent and round(float(exponent), 3),
                f"driver_cpu_s_{ranks[-1]}": round(found[ranks[-1]]["driver_s"], 3),
            }
        )
    )


if __name__ == "__main__":
    main()
