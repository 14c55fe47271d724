"""The section ``cluster``: machines and processes."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class ClusterConfig(Section):
    address: str = option("", "Ray cluster to join; empty starts a local one.")
    device: str = option("auto", "Accelerator of the hybrid workers.", choices=("auto", "cpu", "cuda"))
    num_nodes: int = positive(1, "Nodes the workers are spread over.", unit="nodes")
    workers_per_node: int = non_negative(
        0,
        "Hybrid workers per node; 0 takes every GPU, and without GPUs two, or up to 8 that divide the batch and fit.",
        unit="workers",
    )
    threads_per_worker: int = non_negative(
        0, "Threads of a hybrid worker on CPU; 0 shares out the cores, one in a Ray that is joined.", unit="threads"
    )
    env: dict[str, str] = option({}, "Environment variables of the workers.")
    object_store_memory_gib: float = positive(1.0, "Ray's object store of a local cluster.", unit="GiB")
    start_timeout_s: float = positive(
        1800.0, "Longest time to place workers and load models, downloads and captured graphs included.", unit="seconds"
    )
