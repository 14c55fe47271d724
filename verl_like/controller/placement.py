"""Ray cluster and placement: where the workers go, with a deadline and a message when they do not fit."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from verl_like.config.schema import ClusterConfig
from verl_like.controller import ray_calls
from verl_like.controller.errors import INTERRUPT, Interrupted, StageTimeout
from verl_like.controller.wait import POLL_S
from verl_like.machine.cores import Shares, usable_cores
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, heartbeat_folder

KNOCK_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Devices:
    """What the hybrid workers run on."""

    kind: str  # "cpu" or "cuda"
    num_nodes: int
    workers_per_node: int
    threads_per_worker: int = 1  # on CPU
    cores: int = 0  # that the workers of a node share on CPU

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.workers_per_node

    @property
    def workers(self) -> str:
        """How many of what, for people."""
        threads = f" of {self.threads_per_worker} thread{'s' * (self.threads_per_worker > 1)}"
        return f"{self.world_size} {self.kind} workers{threads if self.kind == 'cpu' else ''}"

    @property
    def nodes(self) -> list[range]:
        """The ranks of each node."""
        return [
            range(first, first + self.workers_per_node) for first in range(0, self.world_size, self.workers_per_node)
        ]


@contextmanager
def ray_cluster(config: ClusterConfig, run_id: str, *, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
    """Join the cluster at ``cluster.address`` or start one on this machine; left at the end.

    A Ray that is already up in this process is used as it is and stays up.

    Args:
        meanwhile: done while it starts.
    """
    where: dict[str, Any] = (
        {"address": config.address, "runtime_env": {"worker_process_setup_hook": entering(os.getcwd())}}
        if config.address
        else {
            "address": "local",  # without it Ray would join whatever cluster runs on this machine
            "num_cpus": max(os.cpu_count() or 1, config.workers_per_node) if config.device != "cuda" else None,
            "object_store_memory": int(config.object_store_memory_gib * 2**30),
            "include_dashboard": False,
            # By itself Ray has workers yield to every other process: to the scorers, and whatever else runs here.
            # And it starts workers at once, of which ours, having variables of their own, could not be made.
            "_system_config": {"worker_niceness": 0, "prestart_worker_first_driver": False},
        }
    )
    with ExitStack() as entered:
        try:
            _knock(config.address)
            entered.enter_context(
                ray_calls.cluster(
                    start_timeout_s=config.start_timeout_s,
                    marks={FOLDER_VARIABLE: str(heartbeat_folder(run_id))},
                    meanwhile=meanwhile,
                    namespace=run_id,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **where,
                )
            )
        except (ConnectionError, TimeoutError, socket.gaierror) as error:
            if not config.address:
                raise
            raise ValueError(
                f"cluster.address is {config.address}, but no Ray cluster answers there: {error}. "
                f"Start one (ray start --head), correct the address, or leave it empty to start a local one."
            ) from error
        yield


def _knock(address: str) -> None:
    """Try whether anybody listens at ``HOST:PORT``; Ray itself would try a dead host for a quarter of an hour.

    Raises:
        OSError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_TIMEOUT_S).close()


def entering(folder: str) -> Callable[[], None]:
    """What makes relative paths mean in a worker what they mean here; a node without the folder needs absolute ones."""

    def enter() -> None:
        with suppress(FileNotFoundError):
            os.chdir(folder)

    return enter


def devices(config: ClusterConfig, *, shared_out: Callable[[int], Shares]) -> Devices:
    """The devices the configuration asks for, held against what the cluster has.

    Args:
        shared_out: workers of a node without GPUs, and threads of each, by the cores that it has for them.

    Raises:
        ValueError: more GPUs or nodes than exist.
    """
    nodes = [node["Resources"] for node in ray_calls.nodes()]
    gpus = sorted((int(node.get("GPU", 0)) for node in nodes), reverse=True)
    kind = config.device if config.device != "auto" else ("cuda" if gpus[0] else "cpu")
    if config.num_nodes > len(nodes):
        found = f"cluster.num_nodes is {config.num_nodes}, but the Ray cluster has {len(nodes)} nodes."
        raise ValueError(f"{found} Add nodes or lower cluster.num_nodes.")
    available = gpus[config.num_nodes - 1] if kind == "cuda" else min(int(node.get("CPU", 0)) for node in nodes)
    cores = available if config.address else min(available, usable_cores())
    shares = shared_out(cores)
    per_node = config.workers_per_node or (available if kind == "cuda" else shares.workers)
    if per_node > available or per_node == 0:
        thing = "GPUs" if kind == "cuda" else "CPU slots"
        raise ValueError(
            f"cluster.workers_per_node is {config.workers_per_node or 'every ' + thing}, but a node has {available} "
            f"{thing}. "
            f"Set cluster.workers_per_node to at most {available}"
            + (", or cluster.device=cpu." if kind == "cuda" else ".")
        )
    return Devices(kind, config.num_nodes, per_node, 1 if kind == "cuda" else shares.threads, cores)


class Placement:
    """Reserves one bundle of resources on each node for all of its workers, so that neighbouring ranks share a node."""

    def __init__(self, where: Devices, *, timeout_s: float) -> None:
        each = {"CPU": float(where.threads_per_worker), **({"GPU": 1.0} if where.kind == "cuda" else {})}
        self.per_worker = each
        self.nodes, self._per_node = where.nodes, where.workers_per_node
        bundle = {name: count * self._per_node for name, count in each.items()}
        self._group = ray_calls.reserve([bundle] * where.num_nodes)
        deadline = time.monotonic() + timeout_s
        while not ray_calls.is_reserved(self._group, timeout_s=min(POLL_S, timeout_s)):
            if INTERRUPT.is_set():
                self.remove()
                raise Interrupted("start")
            if time.monotonic() < deadline:
                continue
            free = ray_calls.free_resources()
            self.remove()
            raise StageTimeout(
                f"no room for {where.num_nodes} node(s) x {bundle} within {timeout_s:.0f} s; "
                f"free now: {free.get('CPU', 0)} CPUs, {free.get('GPU', 0)} GPUs. "
                "Lower cluster.workers_per_node, or end what holds the resources."
            )

    def of(self, rank: int) -> PlacementGroupSchedulingStrategy:
        """The bundle that a rank goes to; ranks are sorted by node."""
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=rank // self._per_node)

    def remove(self) -> None:
        ray_calls.give_up(self._group)
