"""Ray cluster and placement: where the workers go, with a deadline and a message when they do not fit."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from verl_like.config.schema import ClusterConfig
from verl_like.single_controller.errors import StageTimeout


@dataclass(frozen=True, slots=True)
class Devices:
    """What the hybrid workers run on."""

    kind: str  # "cpu" or "cuda"
    num_nodes: int
    workers_per_node: int

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.workers_per_node


@contextmanager
def ray_cluster(config: ClusterConfig, run_id: str) -> Iterator[None]:
    """Join the cluster at ``cluster.address`` or start one on this machine; left at the end.

    A Ray that is already up in this process is used as it is and stays up.
    """
    if ray.is_initialized():
        yield
        return
    where: dict[str, Any] = {"address": config.address} if config.address else {
        "num_cpus": max(os.cpu_count() or 1, config.workers_per_node or 2) if config.device != "cuda" else None,
        "object_store_memory": int(config.object_store_memory_gib * 2**30),
        "include_dashboard": False,
    }
    ray.init(namespace=run_id, log_to_driver=False, logging_level=logging.ERROR, **where)
    try:
        yield
    finally:
        ray.shutdown()


def devices(config: ClusterConfig) -> Devices:
    """The devices the configuration asks for, held against what the cluster has.

    Raises:
        ValueError: more GPUs or nodes than exist.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = sorted((int(node.get("GPU", 0)) for node in nodes), reverse=True)
    kind = config.device if config.device != "auto" else ("cuda" if gpus[0] else "cpu")
    if config.num_nodes > len(nodes):
        found = f"cluster.num_nodes is {config.num_nodes}, but the Ray cluster has {len(nodes)} nodes."
        raise ValueError(f"{found} Add nodes or lower cluster.num_nodes.")
    available = gpus[config.num_nodes - 1] if kind == "cuda" else min(int(node.get("CPU", 0)) for node in nodes)
    per_node = config.workers_per_node or (available if kind == "cuda" else min(2, available))
    if per_node > available or per_node == 0:
        thing = "GPUs" if kind == "cuda" else "CPU slots"
        raise ValueError(
            f"cluster.workers_per_node is {config.workers_per_node or 'every ' + thing}, but a node has {available} {thing}. "
            f"Set cluster.workers_per_node to at most {available}" + (", or cluster.device=cpu." if kind == "cuda" else ".")
        )
    return Devices(kind, config.num_nodes, per_node)


class Placement:
    """One bundle per worker, a group of bundles per node, so that neighbouring ranks share a node."""

    def __init__(self, where: Devices, *, timeout_s: float) -> None:
        bundle = {"CPU": 1.0, **({"GPU": 1.0} if where.kind == "cuda" else {})}
        self._groups: list[PlacementGroup] = [
            placement_group([bundle] * where.workers_per_node, strategy="STRICT_PACK") for _ in range(where.num_nodes)
        ]
        self._per_node = where.workers_per_node
        ready, _ = ray.wait([group.ready() for group in self._groups], num_returns=len(self._groups), timeout=timeout_s)
        if len(ready) < len(self._groups):
            free = ray.available_resources()
            self.remove()
            raise StageTimeout(
                f"no room for {where.world_size} workers of {bundle} on {where.num_nodes} node(s) within {timeout_s:.0f} s; "
                f"free now: {free.get('CPU', 0)} CPUs, {free.get('GPU', 0)} GPUs. "
                "Lower cluster.workers_per_node, or end what holds the resources."
            )

    def of(self, rank: int) -> tuple[PlacementGroup, int]:
        """The placement group and bundle index of a rank."""
        return self._groups[rank // self._per_node], rank % self._per_node

    def remove(self) -> None:
        for group in self._groups:
            remove_placement_group(group)
