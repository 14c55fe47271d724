"""Kernels for the attention of packed rows, which take the bounds of queries and keys; all need a GPU and 16 bits."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol

import torch
from torch import Tensor

from verl_like.ops.segments import Segments

# Module and package of each FlashAttention; versions 2 and 3 take the same arguments for packed rows.
FLASH_MODULES = {"flash": ("flash_attn", "flash-attn 2"), "flash3": ("flash_attn_interface", "FlashAttention 3")}
VLLM_FLASH = "vllm.vllm_flash_attn"
HALF = (torch.bfloat16, torch.float16)


class Kernel(Protocol):
    """Computes causal attention of packed rows.

    Args:
        q: [K, heads, head_dim].
        k, v: [N, kv_heads, head_dim]. A row's last query sees its last key.
        window: number of keys that a query sees, including its own; None for all before it.

    Returns:
        [K, heads, head_dim].
    """

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, scale: float | None, window: int | None
    ) -> Tensor: ...


def resolve_kernel(requested: str, device: torch.device, dtype: torch.dtype) -> str:
    """Return ``flash3``, ``flash``, ``varlen`` or ``sdpa``: the requested kernel, or for ``auto`` the best available.

    Args:
        dtype: dtype of the forward pass; all kernels except ``sdpa`` require 16 bits.

    Raises:
        ValueError: for a kernel that cannot run on this device, in this dtype, or is not installed.
    """
    is_possible = device.type == "cuda" and dtype in HALF
    if requested == "auto":
        if not is_possible:
            return "sdpa"
        if is_hopper(device) and _flash_function("flash3"):
            return "flash3"
        return "flash" if _flash_function("flash") else "varlen"
    if requested == "sdpa":
        return requested
    if device.type != "cuda":
        raise ValueError(
            f"model.attention is {requested}, which needs a GPU, but this run is on {device.type}. Set "
            f"model.attention=auto."
        )
    if dtype not in HALF:
        raise ValueError(
            f"model.attention is {requested}, which takes bfloat16 or float16, but fsdp.param_dtype makes the forward "
            f"pass {str(dtype).removeprefix('torch.')}. Set model.attention=auto, or fsdp.param_dtype=bfloat16."
        )
    if requested in FLASH_MODULES and _flash_function(requested) is None:
        module, package = FLASH_MODULES[requested]
        raise ValueError(
            f"model.attention is {requested}, but no {module} with flash_attn_varlen_func can be imported. Install "
            f"{package}, or set model.attention=auto."
        )
    return requested


def is_hopper(device: torch.device) -> bool:
    """Return whether this is a GPU for which FlashAttention 3 was written."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability(device)[0] == 9


def register_kernel(name: str, kernel: Kernel) -> None:
    """Add a kernel, or replace one."""
    _KERNELS[name] = kernel


def kernel_of_pass(name: str, device: torch.device) -> Kernel:
    """Return the kernel of this name, or without gradients a faster one that vLLM brings."""
    needs_no_more = not torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled()
    if needs_no_more and name in ("flash", "varlen") and is_hopper(device) and vllm_flash3() is not None:
        return _vllm_flash3
    return _KERNELS[name]


def _flash_function(kernel: str) -> Callable[..., Any] | None:
    """Return FlashAttention's function for packed rows if available; the package may lack it, or not fit torch."""
    try:
        found: Callable[..., Any] = importlib.import_module(FLASH_MODULES[kernel][0]).flash_attn_varlen_func
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None
    return found


@cache
def vllm_flash3() -> Callable[..., Any] | None:
    """Return the function for packed rows of vLLM's FlashAttention, if it has version 3; it has no backward."""
    try:
        package = importlib.import_module(VLLM_FLASH)
        return package.flash_attn_varlen_func if package.is_fa_version_supported(3) else None
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None


def _flash(
    name: str, q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, scale: float | None, window: int | None
) -> Tensor:
    flash = _flash_function(name)
    assert flash is not None, f"unknown kernel {name}"
    # flash-attn expresses "no limit to the left" as -1 in the window, plus the causal flag. A segment's last token sees
    # its last key: that is how it aligns fewer queries than keys (from 2.1 on, and in 3).
    out = flash(
        q,
        k,
        v,
        *segments.bounds,
        softmax_scale=scale,
        causal=True,
        window_size=(-1, -1) if window is None else (window - 1, 0),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    found: Tensor = out[0] if isinstance(out, tuple) else out  # some builds of version 3 also return log-sums
    return found


def _vllm_flash3(
    q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, scale: float | None, window: int | None
) -> Tensor:
    flash = vllm_flash3()
    assert flash is not None, "vLLM has no FlashAttention 3"
    starts, cu_keys, longest, most_keys = segments.bounds
    found: Tensor = flash(
        q,
        k,
        v,
        max_seqlen_q=longest,
        cu_seqlens_q=starts,
        max_seqlen_k=most_keys,
        cu_seqlens_k=cu_keys,
        softmax_scale=scale,
        causal=True,
        window_size=None if window is None else [window - 1, 0],
        fa_version=3,
    )
    return found


def _varlen(q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, scale: float | None, window: int | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    if q.shape[1] != k.shape[1] and "enable_gqa" not in inspect.signature(varlen_attn).parameters:  # torch 2.11
        k, v = (states.repeat_interleave(q.shape[1] // states.shape[1], dim=1) for states in (k, v))
    grouped: dict[str, Any] = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    size = (-1, 0) if window is None else (window - 1, 0)
    out = varlen_attn(q, k, v, *segments.bounds, scale=scale, window_size=size, **grouped)
    assert isinstance(out, Tensor), "varlen_attn returns one tensor unless more outputs are requested"
    return out


_KERNELS: dict[str, Kernel] = {
    "varlen": _varlen,
    "flash": partial(_flash, "flash"),
    "flash3": partial(_flash, "flash3"),
}
