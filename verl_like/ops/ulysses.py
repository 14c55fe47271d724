"""One packed sequence over several ranks: each has a piece of its tokens, and in attention all tokens of some heads.

Jacobs et al., "DeepSpeed Ulysses" (2023), arXiv:2309.14509.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from verl_like.context import current
from verl_like.ops.device_copies import on_device
from verl_like.telemetry.heartbeat import Heartbeat

OTHERS = "the ranks that share a sequence"


@dataclass(frozen=True, slots=True)
class SequenceRanks:
    """Ranks that share every sequence; the k-th rank has the k-th piece."""

    group: dist.ProcessGroup
    size: int
    index: int  # index of this rank among them


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """This rank's tokens of a packed sequence, and the predictors among them.

    Args:
        tokens: [K / ranks] of the K packed tokens.
        predictors: [k] int64, predictors as indices into this rank's tokens.
        positions: [k] int64, their indices among all predictors.
        order: [K_r] int64, position of each predictor in the gathered pieces of all ranks.
        most: number of predictors of the rank with the most.
    """

    sequence_ranks: SequenceRanks
    tokens: slice
    predictors: Tensor
    positions: Tensor
    order: Tensor
    most: int

    def whole(self, own: Tensor) -> Tensor:
        """Gather [k] values of each rank's predictors into [K_r] of all, in row order, equal on all ranks.

        Everything computed from the result is equal on all ranks, so each passes on only its own part of the gradient.
        """
        gathered: Tensor = _Gathered.apply(own, self)  # type: ignore[no-untyped-call]
        return gathered.index_select(0, self.order)


def piece_of(
    sequence_ranks: SequenceRanks, num_tokens: int, predictors: NDArray[np.int64], *, device: torch.device
) -> Piece:
    """Split ``num_tokens`` tokens, a multiple of the number of ranks, into equal pieces.

    Args:
        predictors: [K_r] indices among all tokens.
    """
    width = num_tokens // sequence_ranks.size
    assert width * sequence_ranks.size == num_tokens, (
        f"{num_tokens} tokens cannot be cut into {sequence_ranks.size} equal pieces"
    )
    owner = predictors // width
    counts = np.bincount(owner, minlength=sequence_ranks.size)
    most = int(counts.max(initial=0))
    order = np.empty(len(predictors), np.int64)
    for rank in range(sequence_ranks.size):
        order[owner == rank] = rank * most + np.arange(counts[rank])
    positions = np.flatnonzero(owner == sequence_ranks.index)
    start = sequence_ranks.index * width
    return Piece(
        sequence_ranks=sequence_ranks,
        tokens=slice(start, start + width),
        predictors=on_device(predictors[positions] - start, device),
        positions=on_device(positions, device),
        order=on_device(order, device),
        most=most,
    )


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, piece: Piece) -> Tensor:
        ctx.piece, ctx.length = piece, len(own)
        padded = own.new_zeros(piece.most)
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(piece.sequence_ranks.size)]
        with current(Heartbeat).waiting(OTHERS):
            dist.all_gather(parts, padded, group=piece.sequence_ranks.group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        start = ctx.piece.sequence_ranks.index * ctx.piece.most
        return gradient[start : start + ctx.length], None


def to_heads(q: Tensor, k: Tensor, v: Tensor, sequence_ranks: SequenceRanks) -> tuple[Tensor, ...]:
    """Exchange [own tokens, heads, D] of queries, keys and values for [all tokens, heads / ranks, D], all at once.

    Key heads are repeated if the number of ranks does not divide theirs.
    """
    size, num_heads = sequence_ranks.size, q.shape[1]
    repeats = lcm(k.shape[1], size) // k.shape[1]
    if repeats > 1:
        k, v = (states.repeat_interleave(repeats, dim=1) for states in (k, v))
    assert num_heads % k.shape[1] == 0, f"{num_heads} heads cannot be divided among {size} ranks"
    parts = [states.view(len(states), size, -1, states.shape[2]).transpose(0, 1) for states in (q, k, v)]
    exchanged: Tensor = _SentToAll.apply(torch.cat(parts, dim=2), sequence_ranks)  # type: ignore[no-untyped-call]
    return torch.split(exchanged.flatten(0, 1), [part.shape[2] for part in parts], dim=1)


def to_tokens(states: Tensor, sequence_ranks: SequenceRanks) -> Tensor:
    """Exchange [all tokens, heads / ranks, D] for [own tokens, heads, D]."""
    parts = states.reshape(sequence_ranks.size, -1, *states.shape[1:])
    exchanged: Tensor = _SentToAll.apply(parts, sequence_ranks)  # type: ignore[no-untyped-call]
    return exchanged.transpose(0, 1).flatten(1, 2)


class _SentToAll(torch.autograd.Function):
    """Sends part i of [ranks, ...] to rank i, and returns [ranks, ...] with one part from each rank."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, sequence_ranks: SequenceRanks) -> Tensor:
        ctx.sequence_ranks = sequence_ranks
        return _sent_to_all(parts, sequence_ranks)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sent_to_all(gradient, ctx.sequence_ranks), None


def _sent_to_all(parts: Tensor, sequence_ranks: SequenceRanks) -> Tensor:
    parts = parts.contiguous()
    received = torch.empty_like(parts)
    with current(Heartbeat).waiting(OTHERS):
        dist.all_to_all_single(received, parts, group=sequence_ranks.group)
    return received
