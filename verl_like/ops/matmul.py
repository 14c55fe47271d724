"""Matrix products in float32 on CPU, each by the library that ``MatmulLibraries`` chooses for its shape."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verl_like.context import current
from verl_like.ops.matmul_libraries import MatmulLibraries, Product, onednn_linear


def uses_onednn(product: Product, a: Tensor, b: Tensor) -> bool:
    """Return whether oneDNN computes ``a @ b.T`` of [..., K] and [N, K]."""
    return current(MatmulLibraries).uses_onednn(product, a, b)


def linear(product: Product, a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b.T`` of [M, K] and [N, K]."""
    return onednn_linear(a, b) if uses_onednn(product, a, b) else a @ b.t()


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
        if uses_onednn(Product.FORWARD, states, weight):
            return onednn_linear(states, weight, bias)
        return F.linear(states, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        needs_states, needs_weight, needs_bias = ctx.needs_input_grad
        rows, inputs = gradient.reshape(-1, gradient.shape[-1]), states.reshape(-1, states.shape[-1])
        of_states = linear(Product.INPUT_GRADIENT, rows, weight.t()).view_as(states) if needs_states else None
        of_weight = linear(Product.WEIGHT_GRADIENT, rows.t(), inputs.t()) if needs_weight else None
        return of_states, of_weight, rows.sum(0) if needs_bias else None


class Linear(nn.Linear):
    """A linear layer that uses :func:`linear`, forward and backward."""

    def forward(self, states: Tensor) -> Tensor:
        # A compiler traces the plain operation and makes its own choice.
        is_compiling = torch.compiler.is_compiling()
        if is_compiling or not current(MatmulLibraries).any_uses_onednn(states, self.weight):
            return super().forward(states)
        found: Tensor = _Linear.apply(states, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found


def with_fast_matmul(module: nn.Module) -> None:
    """Make all linear layers of a model use :func:`linear`; names and parameters stay."""
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear
