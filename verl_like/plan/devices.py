"""Specifications of accelerators, and the share of them that training reaches."""

from __future__ import annotations

import time
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One accelerator and its links; rates are per direction.

    Args:
        memory_gib: memory reported by the driver, GiB.
        tflops: dense bfloat16 with float32 accumulation, TFLOP/s.
        memory_gb_s: rate of its memory, GB/s.
        host_gb_s: rate to and from host memory, GB/s.
        peer_gb_s: rate to the other accelerators of its node, GB/s.
        node_gb_s: rate to accelerators of other nodes, per accelerator, GB/s.
    """

    name: str
    kind: str = "cuda"
    memory_gib: float
    tflops: float
    memory_gb_s: float
    host_gb_s: float
    peer_gb_s: float
    node_gb_s: float = 50.0  # one adapter of 400 Gbit/s each


DEVICES = {
    device.name: device
    for device in (
        Device(name="H100", memory_gib=79.6, tflops=989, memory_gb_s=3350, host_gb_s=55, peer_gb_s=450),
        Device(name="H200", memory_gib=140.4, tflops=989, memory_gb_s=4800, host_gb_s=55, peer_gb_s=450),
        Device(name="A100", memory_gib=79.3, tflops=312, memory_gb_s=2039, host_gb_s=25, peer_gb_s=300, node_gb_s=25),
        Device(name="L40S", memory_gib=44.5, tflops=362, memory_gb_s=864, host_gb_s=25, peer_gb_s=25, node_gb_s=25),
        Device(name="4090", memory_gib=23.5, tflops=165, memory_gb_s=1008, host_gb_s=25, peer_gb_s=12, node_gb_s=3),
    )
}
# Reached shares of these specifications. Assumed, not measured on a GPU. Products also wait for their operands, so a 7B
# model's reach 0.58 of an H100's TFLOP/s and a 0.5B model's 0.47. Attention has the share of FlashAttention 2.
PRODUCT_SHARE, ATTENTION_SHARE = 0.62, 0.35
MEMORY_SHARE = 0.8
LINK_SHARE = 0.7


def known(name: str) -> Device | None:
    """Return the device of the table whose name is contained in ``name`` ("NVIDIA H100 80GB HBM3"), or None."""
    return next((device for key, device in DEVICES.items() if key.lower() in name.lower()), None)


def named(name: str) -> Device:
    """Return the device of the table whose name is contained in ``name``.

    Raises:
        ValueError: there is none.
    """
    device = known(name)
    if device is None:
        raise ValueError(f"{name!r} is not in the table of devices, expected one of {', '.join(DEVICES)}.")
    return device


def this_cpu(memory_gib: float, *, num_threads: int) -> Device:
    """Return a worker's share of this machine's cores as a device, measured for 0.25 s with ``num_threads`` threads.

    The measured rates are divided by the shares above, because plans multiply by them.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        a, b = torch.ones(512, 512), torch.ones(512, 512)
        flops = 2 * 512**3 * _per_second(lambda: torch.mm(a, b))
        source, target = torch.ones(2**22), torch.empty(2**22)
        bytes_per_s = 2 * source.nbytes * _per_second(lambda: target.copy_(source))
    finally:
        torch.set_num_threads(threads)
    rate = bytes_per_s / 1e9 / MEMORY_SHARE
    return Device(
        name="cpu",
        kind="cpu",
        memory_gib=memory_gib,
        tflops=flops / 1e12 / PRODUCT_SHARE,
        memory_gb_s=rate,
        host_gb_s=rate,
        peer_gb_s=rate / 4,  # through the loopback and three copies
        node_gb_s=1.0,
    )


def _per_second(call: object) -> float:
    assert callable(call)
    call()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < 0.12:
        call()
        count += 1
    return count / (time.perf_counter() - started)
