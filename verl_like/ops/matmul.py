"""Matrix products in float32 on CPU, by the faster of the two libraries that PyTorch ships.

PyTorch uses MKL, which on an EPYC with AVX-512 reaches 100 GFLOP/s per core; oneDNN reaches 230. On processors of other
makers PyTorch's own choice is kept.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def linear(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b.T`` of [M, K] and [N, K]."""
    if not prefers_onednn(a, b):
        return a @ b.t()
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return found


def prefers_onednn(*tensors: Tensor) -> bool:
    return all(t.device.type == "cpu" and t.dtype == torch.float32 and t.numel() for t in tensors) and mkl_is_slow()


@cache
def mkl_is_slow() -> bool:
    """Return whether this is an AMD processor with AVX-512, which MKL does not use there."""
    has_onednn = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not has_onednn or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def familiar_size(size: int) -> int:
    """Round up to one of sixteen sizes per power of two.

    oneDNN compiles a kernel for each new size, which takes as long as a product of a small model, and caches 0.4 MiB
    for each.
    """
    step = 1 << max((size - 1).bit_length() - 5, 0)
    return -(-size // step) * step


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        found: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        needs_states, needs_weight, needs_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_states = linear(rows, weight.t()).view_as(states) if needs_states else None
        of_weight = linear(rows.t(), states.reshape(len(rows), -1).t()) if needs_weight else None
        return of_states, of_weight, rows.sum(0) if needs_bias else None


class Linear(nn.Linear):
    """A linear layer that uses :func:`linear`."""

    def forward(self, states: Tensor) -> Tensor:
        # A compiler traces the plain operation and makes its own choice.
        if torch.compiler.is_compiling() or not prefers_onednn(states, self.weight):
            return super().forward(states)
        found: Tensor = _Linear.apply(states, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found


def with_fast_matmul(module: nn.Module) -> None:
    """Make all linear layers of a model use :func:`linear`; names and parameters stay."""
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear
