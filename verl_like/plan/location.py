"""Location of a run's workers, as far as it is known before Ray starts."""

from __future__ import annotations

import math
from dataclasses import replace

from verl_like.checks.cpu_workers import shares_of
from verl_like.checks.gpus import gpus_here, smallest_gpu
from verl_like.config.schema import Config
from verl_like.machine.cores import usable_cores
from verl_like.machine.probes import memory_gib
from verl_like.plan.devices import GIB, Device, known, named, this_cpu
from verl_like.plan.stages import Location


def location_of(config: Config, *, is_timed: bool) -> Location | None:
    """Return the location of a run on this machine, or None if its devices are unknown.

    They are unknown on a joined cluster, and if the GPUs' driver does not report their memory.

    Args:
        is_timed: whether seconds are planned, which requires a measurement on CPU.
    """
    gpus = gpus_here()
    per_node = None if config.cluster.address else gpus.ranks_per_node(config)
    if not per_node:
        return None
    memory, threads = memory_gib() / per_node, 0
    if gpus.runs_on_gpu(config):
        device = _gpu_here()
    else:
        threads = shares_of(config, usable_cores()).threads
        device = this_cpu(memory, num_threads=threads) if is_timed else _untimed(memory)
    if device is None:
        return None
    return Location(device=device, ranks=per_node * config.cluster.num_nodes, ranks_per_node=per_node, threads=threads)


def location_on(config: Config, name: str) -> Location:
    """Return the location of a run on devices of the table, with ``cluster.workers_per_node`` of them per node.

    Raises:
        ValueError: the device is not in the table.
    """
    per_node = config.cluster.wanted_per_node or 1
    return Location(device=named(name), ranks=per_node * config.cluster.num_nodes, ranks_per_node=per_node)


def _untimed(memory: float, *, name: str = "cpu", kind: str = "cpu") -> Device:
    """Return a device with unknown rates; its planned seconds are NaN."""
    return Device(
        name=name,
        kind=kind,
        memory_gib=memory,
        tflops=math.nan,
        memory_gb_s=math.nan,
        host_gb_s=math.nan,
        peer_gb_s=math.nan,
    )


def _gpu_here() -> Device | None:
    """Return the table's entry for this machine's smallest GPU, with the memory that the driver reports."""
    found = smallest_gpu()
    if found is None:
        return None
    name, num_bytes = found
    device = known(name)
    return replace(device, memory_gib=num_bytes / GIB) if device else _untimed(num_bytes / GIB, name=name, kind="cuda")
