"""Count the work of modules that run on the meta device: operations, bytes and FLOP.

Functions that are one kernel on a GPU (attention, Liger's layers, compiled functions of logits tiles) count as one
operation, which reads its inputs and writes its outputs once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import custom_op
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from verl_like.backends.fsdp.fused_layers import is_gated, is_norm
from verl_like.ops.attention_kernels import register_kernel
from verl_like.ops.segments import Segments
from verl_like.ops.tiles import Sums, TileFunctions, add_tile, tile_gradient

COUNTED = "counted"  # name of the attention kernel
# They compute nothing on a GPU.
_FREE = ("empty", "new_empty", "empty_like", "empty_strided", "detach", "lift_fresh", "device", "_local_scalar_dense")
_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm)
# They read or write only the rows that an index names.
_INDEXED = {"gather", "scatter_add_", "scatter_add", "embedding", "index_select"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of an accelerator.

    Args:
        launches: operations.
        flops: of matrix products.
        product_bytes: that matrix products read and write.
        other_bytes: that all other operations read and write.
    """

    launches: float = 0.0
    flops: float = 0.0
    product_bytes: float = 0.0
    other_bytes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in _NAMES})

    def __sub__(self, other: Work) -> Work:
        return self + other * -1.0

    def __mul__(self, factor: float) -> Work:
        return Work(**{name: getattr(self, name) * factor for name in _NAMES})


_NAMES = tuple(field.name for field in fields(Work))


class WorkCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs inside the context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sums = Counter[str]()

    @property
    def work(self) -> Work:
        return Work(**self._sums)

    def take(self) -> Work:
        """Return the work so far, and count from zero again."""
        found, self._sums = self.work, Counter[str]()
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Not run with `out`: for some operations the meta device has no such variant.
        found = kwargs["out"] if isinstance(kwargs.get("out"), Tensor) else func(*args, **kwargs)
        self._sums.update(_work_of(func, (args, kwargs), found))
        return found

    def add(self, *, other_bytes: float) -> None:
        """Count one operation that is no product."""
        self._sums.update({"launches": 1.0, "other_bytes": other_bytes})


def _work_of(func: Any, arguments: Any, found: Any) -> dict[str, float]:
    """Return fields of :class:`Work`."""
    name = func._schema.name.partition("::")[2]
    read = {_location(tensor): tensor for tensor in tree_leaves(arguments) if isinstance(tensor, Tensor)}
    made = {_location(tensor): tensor for tensor in tree_leaves(found) if isinstance(tensor, Tensor)}
    is_written = func._schema.is_mutable
    storages = {tensor.untyped_storage()._cdata for tensor in read.values()}
    if name in _FREE or (not is_written and all(each.untyped_storage()._cdata in storages for each in made.values())):
        return {}
    if name in _INDEXED:
        rows = min(
            each.numel() * each.itemsize for each in [*read.values(), *made.values()] if each.is_floating_point()
        )
        return {"launches": 1.0, "other_bytes": 2.0 * rows}
    if func._overloadpacket in _PRODUCTS:
        num_bytes = _bytes(read.values()) + _bytes(made.values()) * (not is_written)
        left, right = [each for each in arguments[0] if isinstance(each, Tensor) and each.dim() >= 2][-2:]
        return {"launches": 1.0, "flops": 2.0 * left.numel() * right.shape[-1], "product_bytes": num_bytes}
    return {"launches": 1.0, "other_bytes": _bytes(read.values()) + _bytes(made.values())}


def _location(tensor: Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())


def _bytes(tensors: Any) -> float:
    """Return the bytes of distinct elements; expanded dimensions count once."""
    total = 0
    for tensor in tensors:
        number = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            number *= size if stride else 1
        total += number * tensor.itemsize
    return float(total)


@cache
def _operators() -> dict[str, Callable[..., Any]]:
    """Declare one operator for each kernel, with that of its backward."""

    def declared(name: str, schema: str, backward_schema: str) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Tensor:
            return torch.empty_like(tensors[0])

        def run_backward(gradient: Tensor, *tensors: Tensor) -> list[Tensor]:
            return [torch.empty_like(each) for each in tensors]

        forward = custom_op(f"verl_like_plan::{name}", run, mutates_args=(), schema=schema)
        backward = custom_op(f"verl_like_plan::{name}_backward", run_backward, mutates_args=(), schema=backward_schema)
        forward.register_fake(run)
        backward.register_fake(run_backward)
        forward.register_autograd(
            lambda ctx, gradient: tuple(backward(gradient, *ctx.saved_tensors)),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        )
        return forward

    two, three = "(Tensor a, Tensor b) -> Tensor", "(Tensor a, Tensor b, Tensor c) -> Tensor"
    return {
        "attention": declared("attention", three, "(Tensor g, Tensor a, Tensor b, Tensor c) -> Tensor[]"),
        "norm": declared("norm", two, "(Tensor g, Tensor a, Tensor b) -> Tensor[]"),
        "gated": declared("gated", two, "(Tensor g, Tensor a, Tensor b) -> Tensor[]"),
    }


def register_counted_attention() -> None:
    """Register the attention kernel :data:`COUNTED`; further calls change nothing."""

    def counted(
        q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, scale: float | None, window: int | None
    ) -> Tensor:
        found: Tensor = _operators()["attention"](q, k, v)
        return found

    register_kernel(COUNTED, counted)


def fuse_layers(module: nn.Module) -> None:
    """Make each layer that Liger's kernels compute count as one of them."""
    operators = _operators()
    for layer in module.modules():
        if is_norm(layer):
            layer.forward = _norm(layer, operators["norm"])
        elif is_gated(layer):
            layer.forward = _gated(layer, operators["gated"])


def _norm(layer: Any, norm: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    return lambda states: norm(states, layer.weight)


def _gated(layer: Any, gated: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    return lambda states: layer.down_proj(gated(layer.gate_proj(states), layer.up_proj(states)))


def fused_tile_functions(counter: WorkCounter) -> TileFunctions:
    """Return functions that count as compiled ones: one reads a tile twice, for its maximum and for its sums, the other
    reads it and writes the gradient. The compiler's own count is the same (tests/unit/test_ops_compiled_bytes.py).
    """

    def add(sums: Sums, logits: Tensor, *arguments: Any) -> Sums:
        with _disable_current_modes():
            found = add_tile(sums, logits, *arguments)
        counter.add(other_bytes=2.0 * logits.nbytes)
        return found

    def gradient(logits: Tensor, *arguments: Any) -> Tensor:
        with _disable_current_modes():
            found = tile_gradient(logits, *arguments)
        counter.add(other_bytes=float(logits.nbytes + found.nbytes))
        return found

    return TileFunctions(add, gradient, take_scratch=False)
