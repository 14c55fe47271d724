"""Which packed tokens attend to which: one segment for each row, and one for each prompt that rows share.

A segment attends causally to its keys, which are those of its shared prompt, if it has one, and its own tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Below this length a padded row costs less than one more kernel call.
_SHORT_ROW = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupKeys:
    """Keys of a group whose rows share prompts, [num_rows, prefix_width + width] when padded: the prompt ends where the
    row's own tokens begin.

    Args:
        places: [num_rows * (prefix_width + width)] int64, the packed token of each key; any token where there is none.
        is_key: [num_rows, prefix_width] bool, what is no padding left of a prompt; None when nothing is padded there.
    """

    prefix_width: int
    places: Tensor
    is_key: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedGroup:
    """Neighbouring segments of similar length: ``num_tokens`` packed tokens seen as ``num_rows`` x ``width``.

    ``places`` [num_tokens] int64 is where each token sits in the flattened ``num_rows * width``; None when nothing is
    padded. ``keys`` is None where segments attend to themselves alone.
    """

    num_tokens: int
    num_rows: int
    width: int
    places: Tensor | None
    keys: GroupKeys | None


@dataclass(frozen=True, kw_only=True)
class Segments:
    """``S`` segments over all packed tokens, for kernels that take lengths and for one that takes padded rows.

    Args:
        cu_seqlens: [S + 1] int32, where each segment starts.
        max_seqlen: tokens of the longest.
        key_places: [N] int64, the packed token of each key; None where every segment attends to itself alone.
        cu_keys: [S + 1] int32, where each segment's keys start.
        max_keys: of any segment.
        make_groups: what :attr:`groups` are made by.
    """

    cu_seqlens: Tensor
    max_seqlen: int
    key_places: Tensor | None
    cu_keys: Tensor
    max_keys: int
    make_groups: Callable[[], tuple[PaddedGroup, ...]]

    @cached_property
    def groups(self) -> tuple[PaddedGroup, ...]:
        """The same, padded; segments without a token are left out. Made where a kernel asks for them."""
        return self.make_groups()

    @property
    def bounds(self) -> tuple[Tensor, Tensor, int, int]:
        """Queries and keys as kernels for packed rows take them, one after the other."""
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
        lengths: [S] tokens of each, in their order.
        prefix_starts, prefix_lengths: [S] the packed tokens of the prompt that a segment shares, with length 0 where
            it shares none; None where none does.
    """
    cu_seqlens = _ends(lengths)
    if prefix_starts is None or prefix_lengths is None or not prefix_lengths.any():
        cu_keys = torch.from_numpy(cu_seqlens.astype(np.int32)).to(device)
        longest = int(lengths.max(initial=0))
        return Segments(
            cu_seqlens=cu_keys,
            max_seqlen=longest,
            key_places=None,
            cu_keys=cu_keys,
            max_keys=longest,
            make_groups=partial(_groups, lengths, np.zeros_like(lengths), np.zeros_like(lengths), device=device),
        )
    pieces = np.stack([prefix_lengths, lengths], axis=1)
    places = ranges(np.stack([prefix_starts, cu_seqlens[:-1]], axis=1).reshape(-1), pieces.reshape(-1))
    num_keys = pieces.sum(axis=1)
    return Segments(
        cu_seqlens=torch.from_numpy(cu_seqlens.astype(np.int32)).to(device),
        max_seqlen=int(lengths.max()),
        key_places=torch.from_numpy(places).to(device),
        cu_keys=torch.from_numpy(_ends(num_keys).astype(np.int32)).to(device),
        max_keys=int(num_keys.max()),
        make_groups=partial(_groups, lengths, prefix_starts, prefix_lengths, device=device),
    )


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """``start, start + 1, ...`` for ``length`` steps, for each pair, one after the other."""
    before = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - before, lengths)
    return places


def _ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])


def _groups(
    lengths: NDArray[np.int64],
    prefix_starts: NDArray[np.int64],
    prefix_lengths: NDArray[np.int64],
    *,
    device: torch.device,
) -> tuple[PaddedGroup, ...]:
    """Groups of neighbouring segments of similar lengths, with prompts of similar lengths."""
    starts = _ends(lengths)[:-1]
    taken = np.flatnonzero(lengths)
    pairs = list(zip(lengths[taken].tolist(), prefix_lengths[taken].tolist(), strict=True))
    parts = [taken[cut] for cut in _similar(pairs)]
    return tuple(
        _group(lengths[part], starts[part], prefix_lengths[part], prefix_starts[part], device=device) for part in parts
    )


def _similar(items: Sequence[tuple[int, ...]]) -> Iterator[slice]:
    """Cut items, in their order, into runs whose lengths of each kind are even."""
    first = 0
    spans: list[tuple[int, int]] = []
    for place, lengths in enumerate(items):
        alone = [(length, length) for length in lengths]
        wider = [(min(low, n), max(high, n)) for (low, high), n in zip(spans or alone, lengths, strict=True)]
        if all(_is_even(low, high) for low, high in wider):
            spans = wider
        else:
            yield slice(first, place)
            first, spans = place, alone
    if items:
        yield slice(first, len(items))


def _is_even(low: int, high: int) -> bool:
    """Whether padding to the longest less than doubles each, or all are short; those without any stay by themselves."""
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
    places = None if is_token.all() else torch.from_numpy(np.flatnonzero(is_token.reshape(-1))).to(device)
    prefix_width = int(prefix_lengths.max())
    keys = None
    if prefix_width:
        is_prefix = np.arange(prefix_width) >= prefix_width - prefix_lengths[:, None]
        key_places = np.zeros((len(lengths), prefix_width + width), np.int64)
        key_places[:, :prefix_width][is_prefix] = ranges(prefix_starts, prefix_lengths)
        key_places[:, prefix_width:][is_token] = ranges(starts, lengths)
        keys = GroupKeys(
            prefix_width=prefix_width,
            places=torch.from_numpy(key_places.reshape(-1)).to(device),
            is_key=None if is_prefix.all() else torch.from_numpy(is_prefix).to(device),
        )
    return PaddedGroup(num_tokens=num_tokens, num_rows=len(lengths), width=width, places=places, keys=keys)
