"""Attention structure of packed tokens: one segment for each row, and one for each prompt that rows share.

A segment attends causally to its keys, which are those of its shared prompt, if it has one, and its own tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.ops.device_copies import on_device
from verl_like.ops.short_attention import FoldedTrees, Trees, trees

# Below this length a padded row costs less than one more kernel call.
_SHORT_ROW = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupKeys:
    """Keys of a group whose rows share prompts, padded to [num_rows, prefix_width + width].

    The prompt ends directly before the row's own tokens.

    Args:
        indices: [num_rows * (prefix_width + width)] int64, the packed token of each key; any token at padding.
        is_key: [num_rows, prefix_width] bool, false at the padding left of a prompt; None if nothing is padded there.
    """

    prefix_width: int
    indices: Tensor
    is_key: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedGroup:
    """Neighbouring segments of similar length: ``num_tokens`` packed tokens viewed as ``num_rows`` x ``width``.

    ``positions`` [num_tokens] int64 is the position of each token in the flattened ``num_rows * width``; None if
    nothing is padded. ``keys`` is None if segments attend only to themselves.
    """

    num_tokens: int
    num_rows: int
    width: int
    positions: Tensor | None
    keys: GroupKeys | None


@dataclass(frozen=True, kw_only=True)
class Segments:
    """``S`` segments over all packed tokens, for kernels that take lengths and for one that takes padded rows.

    Args:
        cu_seqlens: [S + 1] int32, start of each segment.
        max_seqlen: number of tokens of the longest.
        key_indices: [N] int64, the packed token of each key; None if every segment attends only to itself.
        cu_keys: [S + 1] int32, start of each segment's keys.
        max_keys: largest number of keys of a segment.
        make_groups: function that builds :attr:`groups`.
        make_trees: function that builds the trees of :meth:`folded_trees`.
    """

    cu_seqlens: Tensor
    max_seqlen: int
    key_indices: Tensor | None
    cu_keys: Tensor
    max_keys: int
    make_groups: Callable[[], tuple[PaddedGroup, ...]]
    make_trees: Callable[[], Trees | None]
    _folded: dict[tuple[int, int], FoldedTrees] = field(default_factory=dict)

    @cached_property
    def groups(self) -> tuple[PaddedGroup, ...]:
        """The segments as padded groups, without empty ones; built when a kernel first needs them."""
        return self.make_groups()

    @cached_property
    def trees(self) -> Trees | None:
        """The segments as trees; None if one is too long. Built when a kernel first needs them."""
        return self.make_trees()

    def folded_trees(self, heads: int, kv_heads: int) -> FoldedTrees | None:
        """Return the trees for that many heads, which usually all layers have; None if one is too long."""
        if self.trees is None:
            return None
        if (heads, kv_heads) not in self._folded:
            self._folded[heads, kv_heads] = self.trees.folded(heads, kv_heads)
        return self._folded[heads, kv_heads]

    @property
    def bounds(self) -> tuple[Tensor, Tensor, int, int]:
        """Bounds and maximal lengths of queries and keys, in the argument order of kernels for packed rows."""
        return self.cu_seqlens, self.cu_keys, self.max_seqlen, self.max_keys


def segments(
    lengths: NDArray[np.int64],
    prefix_starts: NDArray[np.int64] | None = None,
    prefix_lengths: NDArray[np.int64] | None = None,
    *,
    device: torch.device,
) -> Segments:
    """Describe packed segments.

    Args:
        lengths: [S] tokens of each segment.
        prefix_starts, prefix_lengths: [S] the packed tokens of the prompt that a segment shares, with length 0 if it
            shares none; None if no segment does.
    """
    cu_seqlens = _ends(lengths)
    if prefix_starts is None or prefix_lengths is None or not prefix_lengths.any():
        none = np.zeros_like(lengths)
        cu_keys = on_device(cu_seqlens.astype(np.int32), device)
        longest = int(lengths.max(initial=0))
        return Segments(
            cu_seqlens=cu_keys,
            max_seqlen=longest,
            key_indices=None,
            cu_keys=cu_keys,
            max_keys=longest,
            make_groups=partial(_groups, lengths, none, none, device=device),
            make_trees=partial(trees, lengths, none, none),
        )
    pieces = np.stack([prefix_lengths, lengths], axis=1)
    indices = ranges(np.stack([prefix_starts, cu_seqlens[:-1]], axis=1).reshape(-1), pieces.reshape(-1))
    num_keys = pieces.sum(axis=1)
    return Segments(
        cu_seqlens=on_device(cu_seqlens.astype(np.int32), device),
        max_seqlen=int(lengths.max()),
        key_indices=on_device(indices, device),
        cu_keys=on_device(_ends(num_keys).astype(np.int32), device),
        max_keys=int(num_keys.max()),
        make_groups=partial(_groups, lengths, prefix_starts, prefix_lengths, device=device),
        make_trees=partial(trees, lengths, prefix_starts, prefix_lengths),
    )


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``start, start + 1, ...`` for ``length`` steps, for each pair, concatenated."""
    before = np.cumsum(lengths) - lengths
    indices: NDArray[np.int64] = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - before, lengths)
    return indices


def _ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])


def _groups(
    lengths: NDArray[np.int64],
    prefix_starts: NDArray[np.int64],
    prefix_lengths: NDArray[np.int64],
    *,
    device: torch.device,
) -> tuple[PaddedGroup, ...]:
    """Return groups of neighbouring segments of similar lengths, with prompts of similar lengths."""
    starts = _ends(lengths)[:-1]
    taken = np.flatnonzero(lengths)
    pairs = list(zip(lengths[taken].tolist(), prefix_lengths[taken].tolist(), strict=True))
    parts = [taken[cut] for cut in _similar(pairs)]
    return tuple(
        _group(lengths[part], starts[part], prefix_lengths[part], prefix_starts[part], device=device) for part in parts
    )


def _similar(items: Sequence[tuple[int, ...]]) -> Iterator[slice]:
    """Split items, in their order, into runs in which lengths of each kind are similar."""
    first = 0
    spans: list[tuple[int, int]] = []
    for position, lengths in enumerate(items):
        alone = [(length, length) for length in lengths]
        wider = [(min(low, n), max(high, n)) for (low, high), n in zip(spans or alone, lengths, strict=True)]
        if all(_is_even(low, high) for low, high in wider):
            spans = wider
        else:
            yield slice(first, position)
            first, spans = position, alone
    if items:
        yield slice(first, len(items))


def _is_even(low: int, high: int) -> bool:
    """Return whether padding to the longest less than doubles each, or all are short; zero lengths form their
    own runs.
    """
    return low == high or (low > 0 and (2 * low >= high or high <= _SHORT_ROW))


def _group(
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    prefix_lengths: NDArray[np.int64],
    prefix_starts: NDArray[np.int64],
    *,
    device: torch.device,
) -> PaddedGroup:
    width, num_tokens = int(lengths.max()), int(lengths.sum())
    is_token = np.arange(width) < lengths[:, None]
    positions = None if is_token.all() else on_device(np.flatnonzero(is_token.reshape(-1)), device)
    prefix_width = int(prefix_lengths.max())
    keys = None
    if prefix_width:
        is_prefix = np.arange(prefix_width) >= prefix_width - prefix_lengths[:, None]
        key_indices = np.zeros((len(lengths), prefix_width + width), np.int64)
        key_indices[:, :prefix_width][is_prefix] = ranges(prefix_starts, prefix_lengths)
        key_indices[:, prefix_width:][is_token] = ranges(starts, lengths)
        keys = GroupKeys(
            prefix_width=prefix_width,
            indices=on_device(key_indices.reshape(-1), device),
            is_key=None if is_prefix.all() else on_device(is_prefix, device),
        )
    return PaddedGroup(num_tokens=num_tokens, num_rows=len(lengths), width=width, positions=positions, keys=keys)
