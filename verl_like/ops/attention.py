"""Causal attention over packed rows, as transformers calls it under the name ``verl_like_packed``.

The model's forward passes ``cu_seqlens``, ``max_seqlen``, ``groups`` and ``kernel`` through to
:func:`packed_attention`. transformers (5.x) builds no mask for an attention it does not know, so no ``[K, K]`` mask
exists.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

PACKED_ATTENTION = "verl_like_packed"
HALF = (torch.bfloat16, torch.float16)

# Below this length a padded row costs less than one more kernel call.
_SHORT_ROW = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedGroup:
    """Neighbouring rows of similar length: ``num_tokens`` packed tokens seen as ``num_rows`` x ``width``.

    ``places`` [num_tokens] int64 is where each token sits in the flattened ``num_rows * width``; None when nothing is
    padded.
    """

    num_tokens: int
    num_rows: int
    width: int
    places: Tensor | None


def padded_groups(lengths: NDArray[np.int64], *, device: torch.device) -> tuple[PaddedGroup, ...]:
    """Cut rows, in their order, into groups whose shortest row is at least half its longest (or which are
    all short).
    """
    groups = []
    first, shortest, longest = 0, 0, 0
    for row, length in enumerate([*lengths.tolist(), None]):
        if length is not None and row > first:
            low, high = min(shortest, length), max(longest, length)
            if 2 * low >= high or high <= _SHORT_ROW:
                shortest, longest = low, high
                continue
        if row > first:
            groups.append(_group(lengths[first:row], longest, device))
        if length is not None:
            first, shortest, longest = row, length, length
    return tuple(groups)


def _group(lengths: NDArray[np.int64], width: int, device: torch.device) -> PaddedGroup:
    num_tokens = int(lengths.sum())
    places = None
    if num_tokens < len(lengths) * width:
        places = torch.from_numpy(np.flatnonzero((np.arange(width) < lengths[:, None]).reshape(-1))).to(device)
    return PaddedGroup(num_tokens=num_tokens, num_rows=len(lengths), width=width, places=places)


def register_packed_attention() -> None:
    """Make the name known to transformers; calling it again changes nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED_ATTENTION, packed_attention)


def resolve_kernel(requested: str, device: torch.device, dtype: torch.dtype) -> str:
    """``flash``, ``varlen`` or ``sdpa``: the requested kernel, or for ``auto`` the best that is there.

    Args:
        dtype: of the forward pass; ``flash`` and ``varlen`` take 16 bits only.

    Raises:
        ValueError: for a kernel that cannot run on this device, in this dtype, or is not installed.
    """
    is_possible = device.type == "cuda" and dtype in HALF
    if requested == "auto":
        if not is_possible:
            return "sdpa"
        return "flash" if has_flash_varlen() else "varlen"
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
    if requested == "flash" and not has_flash_varlen():
        raise ValueError(
            "model.attention is flash, but no package flash-attn with flash_attn_varlen_func can be imported. Install "
            "flash-attn 2, or set model.attention=auto."
        )
    return requested


def has_flash_varlen() -> bool:
    """Whether FlashAttention's function for packed rows is here; the package may lack it, or not fit torch."""
    try:
        from flash_attn import flash_attn_varlen_func  # noqa: F401 (asked for, not used)
    except (ImportError, OSError, RuntimeError):
        return False
    return True


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seqlens: Tensor,
    max_seqlen: int,
    groups: tuple[PaddedGroup, ...],
    kernel: str,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each row.

    Args:
        query: [1, heads, K, head_dim].
        key, value: [1, kv_heads, K, head_dim].
        sliding_window: tokens a query sees, itself included; None for all before it.

    Returns:
        [1, K, heads, head_dim], and no attention weights. Dropout is never applied: the log-probs of a policy with
        dropout are not those its rollout sampled from.

    Raises:
        ValueError: for logit soft-capping or attention sinks, which these kernels do not have.
    """
    assert attention_mask is None, "packed attention takes cu_seqlens, never a mask"
    if softcap or s_aux is not None:
        raise ValueError(
            "this model uses attention soft-capping or sinks, which packed attention lacks. Set "
            "model.remove_padding=false."
        )
    q, k, v = (states[0].transpose(0, 1) for states in (query, key, value))  # [K, heads, head_dim]
    if kernel == "sdpa":
        return _sdpa(q, k, v, groups=groups, scale=scaling, sliding_window=sliding_window)[None], None
    window = (-1, 0) if sliding_window is None else (sliding_window - 1, 0)
    if kernel == "varlen":
        return _varlen(q, k, v, cu_seqlens, max_seqlen, scale=scaling, window=window)[None], None
    assert kernel == "flash", f"unknown kernel {kernel}"
    from flash_attn import flash_attn_varlen_func

    # flash-attn writes "no limit to the left" as -1 in the window and asks for causality besides.
    out = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens,
        cu_seqlens,
        max_seqlen,
        max_seqlen,
        softmax_scale=scaling,
        causal=True,
        window_size=(-1, -1) if sliding_window is None else window,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    return out[None], None


def _varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    *,
    scale: float | None,
    window: tuple[int, int],
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    if q.shape[1] != k.shape[1] and "enable_gqa" not in inspect.signature(varlen_attn).parameters:  # torch 2.11
        k, v = (states.repeat_interleave(q.shape[1] // states.shape[1], dim=1) for states in (k, v))
    grouped: dict[str, Any] = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    out = varlen_attn(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, scale=scale, window_size=window, **grouped
    )
    assert isinstance(out, Tensor), "varlen_attn returns one tensor unless asked for more"
    return out


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, *, groups: tuple[PaddedGroup, ...], scale: float | None, sliding_window: int | None
) -> Tensor:
    """One causal call per group. Right padding needs no mask under causality:
    real queries never look that far right.
    """
    grouped = q.shape[1] != k.shape[1]
    sizes = [group.num_tokens for group in groups]
    outputs = []
    # split, not slices: its backward is one concatenation instead of one zero-filled [K, ...] per group.
    for group, *states in zip(groups, torch.split(q, sizes), torch.split(k, sizes), torch.split(v, sizes), strict=True):
        padded = [_pad(state, group) for state in states]
        mask = None
        if sliding_window is not None and sliding_window < group.width:
            ones = torch.ones(group.width, group.width, dtype=torch.bool, device=q.device)
            mask = ones.tril().triu(1 - sliding_window)
        out = nn.functional.scaled_dot_product_attention(
            padded[0], padded[1], padded[2], attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
        )
        flat = out.transpose(1, 2).reshape(group.num_rows * group.width, *q.shape[1:])
        outputs.append(flat if group.places is None else flat.index_select(0, group.places))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _pad(states: Tensor, group: PaddedGroup) -> Tensor:
    """[num_tokens, heads, head_dim] -> [num_rows, heads, width, head_dim], zeros on the right of each row."""
    if group.places is not None:
        # index_copy, because its backward is a plain gather; indexing with repeated padding places would accumulate.
        states = states.new_zeros(group.num_rows * group.width, *states.shape[1:]).index_copy(0, group.places, states)
    return states.reshape(group.num_rows, group.width, *states.shape[1:]).transpose(1, 2)
