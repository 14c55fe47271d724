"""The GPUs of this machine and the resulting number of workers. This module does not import torch."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_like.checks.cpu_workers import shares_of
from verl_like.config.schema import Config
from verl_like.machine.cores import usable_cores


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a run, the second input of the rules.

    Args:
        number: number of GPUs; None before a cluster is joined.
        torch_is_cpu_build: whether the installed torch cannot use any GPU.
    """

    number: int | None
    torch_is_cpu_build: bool = False

    def runs_on_gpu(self, config: Config) -> bool | None:
        """Return whether workers get GPUs; None if that depends on a cluster that is not joined yet."""
        if config.cluster.device != "auto":
            return config.cluster.device == "cuda"
        return None if self.number is None else self.number > 0

    def ranks_per_node(self, config: Config) -> int | None:
        """Return the number of hybrid workers per node; None if it depends on a cluster that is not joined yet."""
        cluster = config.cluster
        if cluster.wanted_per_node:
            return cluster.wanted_per_node
        on_gpu = self.runs_on_gpu(config)
        if on_gpu is None or (on_gpu and self.number is None):
            return None
        if on_gpu and self.number is not None:
            return self.number // cluster.num_nodes
        # The cores of a joined cluster are unknown.
        return None if cluster.address else shares_of(config, usable_cores()).workers


def gpus_here() -> Gpus:
    """Return the GPUs of this machine."""
    return Gpus(num_gpus(), torch_is_cpu_build())


def num_gpus() -> int:
    """Return the number of GPUs as torch counts them: those of the driver that CUDA_VISIBLE_DEVICES selects."""
    return num_visible(_num_of_driver(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _num_of_driver() -> int:
    """Return the number of GPUs according to the driver's library."""
    with _nvml() as nvml:
        count = ctypes.c_uint(0)
        status = 1 if nvml is None else nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return count.value if status == 0 else 0


def smallest_gpu() -> tuple[str, int] | None:
    """Return name and memory in bytes of this machine's smallest GPU, or None; creates no CUDA context."""
    found = []
    with _nvml() as nvml:
        for index in range(_num_of_driver() if nvml is not None else 0):
            device, name, memory = ctypes.c_void_p(), ctypes.create_string_buffer(96), (ctypes.c_ulonglong * 3)()
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
                continue
            if nvml.nvmlDeviceGetName(device, name, 96) == 0 and nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0:
                found.append((name.value.decode(errors="replace"), int(memory[0])))
    return min(found, key=lambda gpu: gpu[1], default=None)


@contextmanager
def _nvml() -> Iterator[Any]:
    """Yield the driver's library, or None."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2() != 0:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def num_visible(num_devices: int, visible: str | None) -> int:
    """Return the number of devices that CUDA_VISIBLE_DEVICES selects.

    CUDA ignores the list from the first invalid entry on.
    """
    if visible is None:
        return num_devices
    count = 0
    for entry in (part.strip() for part in visible.split(",")):
        if not (entry.startswith(("GPU-", "MIG-")) or (entry.isdigit() and int(entry) < num_devices)):
            break
        count += 1
    return min(count, num_devices)


def torch_is_cpu_build() -> bool:
    """Return whether the installed torch cannot use GPUs, according to its version file."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py")
    return version.is_file() and bool(re.search(r"^cuda\b.*=\s*None\s*$", version.read_text(), re.MULTILINE))
