"""Attention of short segments on CPU, by batched products over whole prompts with their responses.

PyTorch's attention kernel takes a microsecond for each head of each row, which is longer than the arithmetic of a few
tokens, and rows that share a prompt need copies of its keys. Here all tokens that share a prompt are one row, a *tree*,
and a mask hides the tokens of the other responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Longer trees are slower than PyTorch's kernel, which computes neither hidden nor later tokens.
MAX_TOKENS = 64
_NARROW = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Trees:
    """All packed tokens as trees of similar size.

    Args:
        tokens: for each size [num_trees, width] the packed token of each position; -1 at padding.
        is_seen: for each size [num_trees, width, width] whether a query (axis 1) sees a key (axis 2).
        num_tokens: K, number of packed tokens.
    """

    tokens: Sequence[NDArray[np.int64]]
    is_seen: Sequence[NDArray[np.bool_]]
    num_tokens: int

    def folded(self, heads: int, kv_heads: int) -> FoldedTrees:
        """Return the trees for states of that many heads; the queries of heads that share keys form one matrix."""
        masks = []
        for seen in self.is_seen:
            mask = np.where(seen, np.float32(0), np.float32(-np.inf))[:, None, None]
            num_trees, width = seen.shape[:2]
            shape = (num_trees, kv_heads, heads // kv_heads, width, width)
            masks.append(torch.from_numpy(np.broadcast_to(mask, shape).copy().reshape(num_trees * kv_heads, -1, width)))
        return FoldedTrees(
            queries=self._slots(kv_heads, heads // kv_heads), keys=self._slots(kv_heads, 1), masks=tuple(masks)
        )

    def _slots(self, kv_heads: int, group: int) -> Slots:
        """Return the rows of states [K * kv_heads * group, D] in the order of the matrices."""
        heads = np.arange(kv_heads * group).reshape(1, kv_heads, group, 1)
        pieces = []
        for tokens in self.tokens:
            rows = tokens[:, None, None, :] * heads.size + heads
            pieces.append(np.where(tokens[:, None, None, :] < 0, -1, rows).reshape(-1))
        rows = np.concatenate(pieces)
        slots = np.empty(self.num_tokens * heads.size, np.int64)
        filled = np.flatnonzero(rows >= 0)
        slots[rows[filled]] = filled
        return Slots(taken=torch.from_numpy(np.maximum(rows, 0)), slots=torch.from_numpy(slots))


@dataclass(frozen=True, kw_only=True, slots=True)
class Slots:
    """How states move between packed rows and padded matrices.

    Args:
        taken: [M] the packed row of each slot; any row at padding.
        slots: [K * heads] the slot of each packed row.
    """

    taken: Tensor
    slots: Tensor

    def padded(self, states: Tensor) -> Tensor:
        """Return [M, D] of packed states [K, heads, D]; padding is not zero."""
        return states.reshape(-1, states.shape[-1]).index_select(0, self.taken)

    def zero_padded(self, states: Tensor) -> Tensor:
        flat = states.reshape(-1, states.shape[-1])
        if len(self.taken) == len(self.slots):
            return flat.index_select(0, self.taken)
        return flat.new_zeros(len(self.taken), flat.shape[1]).index_copy_(0, self.slots, flat)

    def packed(self, padded: Tensor, like: Tensor) -> Tensor:
        """Return the states [K, heads, D] of padded ones [M, D]."""
        return padded.index_select(0, self.slots).view(like.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldedTrees:
    """Trees for a number of heads; ``masks`` are added to the scores [matrices, queries, keys] of each size."""

    queries: Slots
    keys: Slots
    masks: tuple[Tensor, ...]

    def matrices(self, queries: Sequence[Tensor], keys: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
        """Yield views of padded states, [matrices, queries or keys, D], for each size."""
        first_query = first_key = 0
        for mask in self.masks:
            count, num_queries, num_keys = mask.shape
            last_query, last_key = first_query + count * num_queries, first_key + count * num_keys
            yield (
                *(states[first_query:last_query].view(count, num_queries, -1) for states in queries),
                *(states[first_key:last_key].view(count, num_keys, -1) for states in keys),
            )
            first_query, first_key = last_query, last_key


def trees(
    lengths: NDArray[np.int64], prefix_starts: NDArray[np.int64], prefix_lengths: NDArray[np.int64]
) -> Trees | None:
    """Return packed segments as trees; None if one has more than ``MAX_TOKENS``.

    Args:
        lengths, prefix_starts, prefix_lengths: as for :func:`verl_like.ops.segments.segments`.
    """
    starts = np.cumsum(lengths) - lengths
    # A segment without a prompt of others is the root of a tree, and may be such a prompt.
    roots = np.where(prefix_lengths > 0, prefix_starts, starts)
    num_tokens = int(lengths.sum())
    segment_of = np.repeat(np.arange(len(lengths)), lengths)
    _, tree_of, sizes = np.unique(roots[segment_of], return_inverse=True, return_counts=True)
    if sizes.max(initial=0) > MAX_TOKENS:
        return None
    order = np.argsort(tree_of, kind="stable")
    firsts = np.cumsum(sizes) - sizes
    kind_of = np.frexp(np.maximum(sizes - 1, _NARROW - 1))[1]
    tokens, is_seen = [], []
    for kind in np.unique(kind_of):
        these = np.flatnonzero(kind_of == kind)
        columns = np.arange(sizes[these].max())
        slots = firsts[these, None] + columns
        found = np.where(columns < sizes[these, None], order[np.minimum(slots, num_tokens - 1)], -1)
        segment = segment_of[found]
        query, key = found[:, :, None], found[:, None, :]
        own, shared = starts[segment][:, :, None], prefix_starts[segment][:, :, None]
        seen = (own <= key) & (key <= query)
        seen |= (shared <= key) & (key < shared + prefix_lengths[segment][:, :, None])
        seen |= np.eye(len(columns), dtype=bool)  # padding sees itself: a softmax over nothing is NaN
        tokens.append(found)
        is_seen.append(seen)
    return Trees(tokens=tokens, is_seen=is_seen, num_tokens=num_tokens)


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, folded: FoldedTrees, scale: float) -> Tensor:
        queries, keys, values = folded.queries.padded(q), folded.keys.padded(k), folded.keys.padded(v)
        out = torch.empty_like(queries)
        all_probs = []
        for mask, (query, found, key, value) in zip(
            folded.masks, folded.matrices((queries, out), (keys, values)), strict=True
        ):
            probs = torch.baddbmm(mask, query, key.transpose(1, 2), alpha=scale).softmax(-1)
            torch.bmm(probs, value, out=found)
            all_probs.append(probs)
        ctx.save_for_backward(q, k, queries, keys, values, *all_probs)
        ctx.folded, ctx.scale = folded, scale
        return folded.queries.packed(out, q)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, queries, keys, values, *all_probs = ctx.saved_tensors
        folded: FoldedTrees = ctx.folded
        of_out = folded.queries.zero_padded(gradient)
        of_queries, of_keys, of_values = (torch.empty_like(states) for states in (queries, keys, values))
        views = folded.matrices((queries, of_out, of_queries), (keys, values, of_keys, of_values))
        for probs, (query, of_found, of_query, key, value, of_key, of_value) in zip(all_probs, views, strict=True):
            torch.bmm(probs.transpose(1, 2), of_found, out=of_value)
            of_probs = torch.bmm(of_found, value.transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_probs, probs, -1, probs.dtype).mul_(ctx.scale)
            torch.bmm(of_scores, key, out=of_query)
            torch.bmm(of_scores.transpose(1, 2), query, out=of_key)
        rows = folded.keys
        return folded.queries.packed(of_queries, q), rows.packed(of_keys, k), rows.packed(of_values, k), None, None


def short_attention(q: Tensor, k: Tensor, v: Tensor, folded: FoldedTrees, *, scale: float) -> Tensor:
    """Return [K, heads, D].

    Args:
        q: [K, heads, D].
        k, v: [K, kv_heads, D].
    """
    found: Tensor = _ShortAttention.apply(q, k, v, folded, scale)  # type: ignore[no-untyped-call]
    return found
