"""Causal attention over packed rows, registered with transformers as ``verl_like_packed``.

The model's forward passes ``segments`` and ``kernel`` through to :func:`packed_attention`. transformers (5.x) builds no
mask for an attention that it does not know, so no ``[K, K]`` mask exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from verl_like.ops.attention_kernels import kernel_of_pass
from verl_like.ops.segments import PaddedGroup, Segments
from verl_like.ops.short_attention import MAX_TOKENS, short_attention
from verl_like.ops.ulysses import SequenceRanks, to_heads, to_tokens

PACKED_ATTENTION, HIDDEN_ATTENTION = "verl_like_packed", "verl_like_packed_hidden"


def register_packed_attention() -> None:
    """Register the attention with transformers; further calls change nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED_ATTENTION, packed_attention)


def register_hidden_attention() -> None:
    """Register the same attention under a name that compilers skip, because groups differ in every pass."""
    from transformers import AttentionInterface

    hidden = torch.compiler.disable(packed_attention)  # type: ignore[no-untyped-call]
    AttentionInterface.register(HIDDEN_ATTENTION, hidden)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Segments,
    kernel: str,
    sequence_ranks: SequenceRanks | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention of each segment to its keys.

    Args:
        query: [1, heads, K, head_dim].
        key: [1, kv_heads, K, head_dim].
        value: [1, kv_heads, K, value_dim], at most head_dim, as in latent attention.
        sequence_ranks: ranks that each hold K / ranks of the tokens.
        sliding_window: number of tokens that a query sees, including itself; None for all before it.

    Returns:
        [1, K, heads, value_dim], and no attention weights. Dropout is never applied: the log-probs of a policy with
        dropout are not those from which its rollout sampled.

    Raises:
        ValueError: for logit soft-capping or attention sinks, which these kernels do not support.
    """
    assert attention_mask is None, "packed attention takes segments, never a mask"
    if softcap or s_aux is not None:
        raise ValueError(
            "this model uses attention soft-capping or sinks, which packed attention lacks. Set "
            "model.remove_padding=false."
        )
    # squeeze, because the backward of an index fills a tensor with zeros and copies into it. [K, heads, head_dim]
    q, k, v = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))
    missing = q.shape[-1] - v.shape[-1]
    if missing:  # the kernels take one size
        v = nn.functional.pad(v, (0, missing))
    if sequence_ranks is not None:
        q, k, v = to_heads(q, k, v, sequence_ranks)
    out = _attended(q, k, v, segments=segments, kernel=kernel, scaling=scaling, sliding_window=sliding_window)
    out = (out if sequence_ranks is None else to_tokens(out, sequence_ranks))[None]
    return (out[..., :-missing] if missing else out), None


def _attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    segments: Segments,
    kernel: str,
    scaling: float | None,
    sliding_window: int | None,
) -> Tensor:
    """Return [K, heads, head_dim] for all tokens."""
    if kernel == "sdpa":
        is_short = q.device.type == "cpu" and (sliding_window is None or sliding_window >= MAX_TOKENS)
        folded = segments.folded_trees(q.shape[1], k.shape[1]) if is_short else None
        if folded is not None and q.dtype == torch.float32:
            return short_attention(q, k, v, folded, scale=scaling or q.shape[-1] ** -0.5)
        return _sdpa(q, k, v, segments=segments, scale=scaling, sliding_window=sliding_window)
    if segments.key_indices is not None:
        k, v = (states.index_select(0, segments.key_indices) for states in (k, v))
    return kernel_of_pass(kernel, q.device)(q, k, v, segments, scale=scaling, window=sliding_window)


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, *, segments: Segments, scale: float | None, sliding_window: int | None
) -> Tensor:
    """Compute attention with one call per group."""
    groups = segments.groups
    outputs = []
    # split, not slices: its backward is one concatenation instead of one zero-filled [K, ...] per group.
    sizes = [group.num_tokens for group in groups]
    own = zip(*(torch.split(states, sizes) for states in (q, k, v)), strict=True)
    shared = _shared_keys(k, v, groups)
    for group, (q_own, k_own, v_own) in zip(groups, own, strict=True):
        query = _pad(q_own, group)
        key, value = (_pad(k_own, group), _pad(v_own, group)) if group.keys is None else next(shared)
        mask = _mask(group, sliding_window, query.device)
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=mask is None, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        flat = out.transpose(1, 2).reshape(group.num_rows * group.width, *q.shape[1:])
        outputs.append(flat if group.positions is None else flat.index_select(0, group.positions))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _shared_keys(k: Tensor, v: Tensor, groups: Iterable[PaddedGroup]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield keys and values of each group that has keys other than its own, [num_rows, heads, prefix_width + width,
    head_dim].

    They are gathered in one operation, because the backward of each gather allocates [K, ...].
    """
    those = [group for group in groups if group.keys is not None]
    if not those:
        return
    all_indices = [group.keys.indices for group in those if group.keys is not None]
    indices, sizes = torch.cat(all_indices), [len(indices) for indices in all_indices]
    keys, values = (torch.split(states.index_select(0, indices), sizes) for states in (k, v))
    for group, *both in zip(those, keys, values, strict=True):
        key, value = (states.reshape(group.num_rows, -1, *states.shape[1:]).transpose(1, 2) for states in both)
        yield key, value


def _mask(group: PaddedGroup, sliding_window: int | None, device: torch.device) -> Tensor | None:
    """Return what a query sees, [1 or num_rows, 1, width, prefix_width + width] bool; None for plain causality.

    Right padding needs no mask with causal attention: real queries never see that far right.
    """
    prefix_width = group.keys.prefix_width if group.keys else 0
    num_keys = prefix_width + group.width
    is_narrow = sliding_window is not None and sliding_window < num_keys
    if not is_narrow and not prefix_width:
        return None
    mask = torch.ones(group.width, num_keys, dtype=torch.bool, device=device).tril(prefix_width)
    if is_narrow:
        assert sliding_window is not None
        mask = mask.triu(prefix_width + 1 - sliding_window)
    if group.keys is None or group.keys.is_key is None:
        return mask[None, None]
    is_key = nn.functional.pad(group.keys.is_key, (0, group.width), value=True)
    return mask & is_key[:, None, None, :]


def _pad(states: Tensor, group: PaddedGroup) -> Tensor:
    """Pad [num_tokens, heads, head_dim] to [num_rows, heads, width, head_dim], with zeros on the right of each row."""
    if group.positions is not None:
        # index_copy, because its backward is a plain gather; indexing with repeated padding positions would accumulate.
        states = states.new_zeros(group.num_rows * group.width, *states.shape[1:]).index_copy(
            0, group.positions, states
        )
    return states.reshape(group.num_rows, group.width, *states.shape[1:]).transpose(1, 2)
