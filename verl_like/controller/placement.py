"""Ray cluster and placement: assign workers to nodes, with a deadline and a message if they do not fit."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from verl_like.config.schema import ClusterConfig
from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.errors import Interrupt, Interrupted, StageTimeout
from verl_like.controller.wait import POLL_S
from verl_like.machine.cores import Shares, usable_cores
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, heartbeat_folder

CONNECT_TIMEOUT_S = 5.0
STARTED_AT_ONCE = 64  # processes that a Ray of this process's own starts at the same time


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices that the hybrid workers run on."""

    kind: str  # "cpu" or "cuda"
    num_nodes: int
    workers_per_node: int
    threads_per_worker: int = 1  # on CPU, for each of which Ray reserves a core
    cores: int = 0  # shared by the workers of a node

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.workers_per_node

    @property
    def num_threads(self) -> int:
        """The threads of a worker's computations on the host."""
        return self.threads_per_worker if self.kind == "cpu" else max(self.cores // self.workers_per_node, 1)

    @property
    def workers(self) -> str:
        """The number and kind of the workers, for messages."""
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
    """Join the cluster at ``cluster.address`` or start one on this machine; leave it at the end.

    A Ray that is already running in this process is used as it is and keeps running.

    Args:
        meanwhile: called while Ray starts.
    """
    where: dict[str, Any] = (
        {"address": config.address, "runtime_env": {"worker_process_setup_hook": entering(os.getcwd())}}
        if config.address
        else {
            "address": "local",  # otherwise Ray would join any cluster that runs on this machine
            "num_cpus": max(os.cpu_count() or 1, config.wanted_per_node) if config.device != "cuda" else None,
            "object_store_memory": int(config.object_store_memory_gib * 2**30),
            "include_dashboard": False,
            # By default Ray gives workers a lower priority than all other processes, such as the scorers. It also
            # starts workers in advance, but ours need their own environment variables and cannot reuse them.
            # It starts as many processes at once as there are cores: scorers would wait for workers to register.
            "_system_config": {
                "worker_niceness": 0,
                "prestart_worker_first_driver": False,
                "worker_maximum_startup_concurrency": STARTED_AT_ONCE,
                # The raylet starts its object store on a thread and connects to it. By default, it retries a failed
                # connection after a second, ten times (2.60); here the same ten seconds have shorter intervals.
                "raylet_client_connect_timeout_milliseconds": 20,
                "raylet_client_num_connect_attempts": 500,
            },
        }
    )
    with ExitStack() as entered:
        try:
            _check_listening(config.address)
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


def _check_listening(address: str) -> None:
    """Check that a server listens at ``HOST:PORT``; Ray itself would retry a dead host for 15 minutes.

    Raises:
        OSError: no server listens there.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()


def entering(folder: str) -> Callable[[], None]:
    """Return a worker hook that enters ``folder``, so that relative paths resolve as on the driver.

    Nodes without this folder need absolute paths.
    """

    def enter() -> None:
        with suppress(FileNotFoundError):
            os.chdir(folder)

    return enter


def devices(config: ClusterConfig, *, shared_out: Callable[[int], Shares]) -> Devices:
    """Return the devices that the configuration requests, after checking that the cluster has them.

    Args:
        shared_out: maps the cores that a node without GPUs has for workers to their number and threads.

    Raises:
        ValueError: more GPUs or nodes are requested than exist.
    """
    nodes = [node["Resources"] for node in ray_calls.nodes()]
    gpus = sorted((int(node.get("GPU", 0)) for node in nodes), reverse=True)
    kind = config.device if config.device != "auto" else ("cuda" if gpus[0] else "cpu")
    if config.num_nodes > len(nodes):
        found = f"cluster.num_nodes is {config.num_nodes}, but the Ray cluster has {len(nodes)} nodes."
        raise ValueError(f"{found} Add nodes or lower cluster.num_nodes.")
    of_nodes = min(int(node.get("CPU", 0)) for node in nodes)
    cores = of_nodes if config.address else min(of_nodes, usable_cores())
    available = gpus[config.num_nodes - 1] if kind == "cuda" else of_nodes
    shares = shared_out(cores)
    per_node = config.wanted_per_node or (available if kind == "cuda" else shares.workers)
    if per_node > available or per_node == 0:
        thing = "GPUs" if kind == "cuda" else "CPU slots"
        raise ValueError(
            f"cluster.workers_per_node is {config.wanted_per_node or 'every ' + thing}, but a node has {available} "
            f"{thing}. "
            f"Set cluster.workers_per_node to at most {available}"
            + (", or cluster.device=cpu." if kind == "cuda" else ".")
        )
    return Devices(kind, config.num_nodes, per_node, 1 if kind == "cuda" else shares.threads, cores)


def pool_of(where: Devices, num_workers: int) -> Devices:
    """Return the devices of a pool with this many of the workers: part of a node, or whole nodes."""
    per_node = min(num_workers, where.workers_per_node)
    assert num_workers % per_node == 0, f"{num_workers} workers do not fill nodes of {where.workers_per_node}"
    cores = where.cores * per_node // where.workers_per_node
    return replace(where, num_nodes=num_workers // per_node, workers_per_node=per_node, cores=cores)


class Placement:
    """Reserves one resource bundle per node for all of its workers, so that neighbouring ranks share a node."""

    def __init__(self, where: Devices, *, timeout_s: float) -> None:
        each = {"CPU": float(where.threads_per_worker), **({"GPU": 1.0} if where.kind == "cuda" else {})}
        self.per_worker = each
        self.nodes, self._per_node = where.nodes, where.workers_per_node
        bundle = {name: count * self._per_node for name, count in each.items()}
        self._group = ray_calls.reserve([bundle] * where.num_nodes)
        deadline = time.monotonic() + timeout_s
        while not ray_calls.is_reserved(self._group, timeout_s=min(POLL_S, timeout_s)):
            if current(Interrupt).is_set():
                self.remove()
                raise Interrupted("start")
            if time.monotonic() < deadline:
                continue
            free = ray_calls.free_resources()
            self.remove()
            raise StageTimeout(
                f"no free resources for {where.num_nodes} node(s) x {bundle} within {timeout_s:.0f} s; "
                f"free now: {free.get('CPU', 0)} CPUs, {free.get('GPU', 0)} GPUs. "
                "Lower cluster.workers_per_node, or end the processes that hold the resources."
            )

    def of(self, rank: int) -> PlacementGroupSchedulingStrategy:
        """Return the bundle of a rank; ranks are sorted by node."""
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=rank // self._per_node)

    def remove(self) -> None:
        ray_calls.release(self._group)
