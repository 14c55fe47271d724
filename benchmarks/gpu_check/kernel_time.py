"""Shares of a GPU's time by kind of kernel, from PyTorch's profiler."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

# Kind -> parts of its kernels' names; the first match counts. Kernels of Triton are Liger's and the compiler's.
KINDS = {
    "attention": ("flash", "fmha", "attention"),
    "products": ("gemm", "nvjet", "cutlass", "xmma", "sm90", "sm80", "splitk"),
    "triton": ("triton", "liger"),
    "optimizer": ("fusedadam", "fused_adam", "multi_tensor"),
    "copies": ("memcpy", "memset", "copy_kernel", "direct_copy"),
}
OTHER, IDLE = "other", "idle"


def kind_of(kernel: str) -> str:
    """Return the kind of a kernel."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), OTHER)


def shares_of_time(call: Callable[[], None]) -> dict[str, float]:
    """Return {kind: share of the seconds of ``call``}, also of the time in which the GPU runs no kernel."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    busy: Counter[str] = Counter()
    for event in profiled.key_averages():
        busy[kind_of(event.key)] += event.self_device_time_total / 1e6
    return {**{kind: of / seconds for kind, of in busy.items()}, IDLE: max(1 - sum(busy.values()) / seconds, 0.0)}
