"""The section ``cluster``: machines and processes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_like.config.schema.fields import non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class ClusterConfig(Section):
    address: str = option("", "Ray cluster to join; empty starts a local one.")
    device: str = option("auto", "Accelerator of the hybrid workers.", choices=("auto", "cpu", "cuda"))
    num_nodes: int = positive(1, "Number of nodes that run workers.", unit="nodes")
    workers_per_node: int = non_negative(
        0,
        "Hybrid workers per node; 0 uses all GPUs; without GPUs, 2, or up to 8 that divide the batch and fit.",
        unit="workers",
    )
    placement: dict[str, float] = option(
        {},
        "Workers of each pool, a number or a fraction of all: {trainer: 4, rollout: 4} separates the engines from "
        "training. ref and critic may have pools, too. Empty places everything on every worker.",
        check=lambda v: all(size > 0 and (size < 1 or size == int(size)) for size in v.values()),
        expected="pools with a whole number of workers, or with fractions below 1",
    )
    threads_per_worker: int = non_negative(
        0, "Threads of a hybrid worker on CPU; 0 divides the cores; in a joined Ray cluster, 1.", unit="threads"
    )
    env: dict[str, str] = option({}, "Environment variables of the workers.")
    object_store_memory_gib: float = positive(1.0, "Ray object store of a local cluster.", unit="GiB")
    start_timeout_s: float = positive(
        1800.0, "Timeout for placing workers and loading models, including downloads and graph capture.", unit="seconds"
    )

    @property
    def wanted_per_node(self) -> int:
        """Workers per node as set by ``workers_per_node`` or the sum of the pools; 0 if neither gives a number."""
        sizes = self.placement.values()
        if self.workers_per_node or not sizes or min(sizes) < 1:
            return self.workers_per_node
        return math.ceil(sum(sizes) / self.num_nodes)
