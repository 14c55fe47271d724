"""Restrict logits to the tokens among which the sampler chose: those that top-k and top-p kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.ops.device_copies import on_device
from verl_like.protocol import Ragged

OUTSIDE = -1e30  # logit of a token that is no candidate: its probability is zero, and times zero it is not NaN


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of each of ``K_r`` targets.

    Args:
        sorted_ids: [N] token ids on the host, ascending.
        ids: [N] int64, the same.
        targets: [N] int64, the index of the target of which each id is a candidate.
        is_limited: [K_r] bool, false for targets with the whole vocabulary as candidates.
    """

    sorted_ids: NDArray[np.int64]
    ids: Tensor
    targets: Tensor
    is_limited: Tensor

    def at(self, positions: Tensor) -> Candidates:
        """Return the candidates of the targets at these positions, [k] int64. It waits for the device."""
        number = np.full(len(self.is_limited), -1)
        number[positions.cpu().numpy()] = np.arange(len(positions))
        targets = number[self.targets.cpu().numpy()]
        is_own, device = targets >= 0, self.ids.device
        ids = self.sorted_ids[is_own]
        return Candidates(
            ids, on_device(ids, device), on_device(targets[is_own], device), self.is_limited.index_select(0, positions)
        )

    def restrict(self, logits: Tensor, start: int) -> Tensor:
        """Replace the logits of tokens that are no candidates by ``OUTSIDE``, in place.

        Args:
            logits: [K_r, v] of the tokens ``start`` to ``start + v`` of the vocabulary.
        """
        first, last = np.searchsorted(self.sorted_ids, (start, start + logits.shape[1])).tolist()
        kept = self.targets[first:last], self.ids[first:last] - start
        values = logits[kept]
        logits.masked_fill_(self.is_limited[:, None], OUTSIDE)
        logits[kept] = values
        return logits


def candidates_of(ids: Ragged, counts: Ragged, responses: Ragged, *, size: int, device: torch.device) -> Candidates:
    """Return the candidates of the response tokens of some rows.

    Args:
        ids: column ``candidate_ids`` of the rows, the sets of all tokens of a row after each other.
        counts: column ``num_candidates``; 0 for tokens with the whole vocabulary as candidates.
        responses: column ``response_ids``.
        size: number of targets; those that fill up a pass have the id 0, their only candidate.
    """
    sizes: NDArray[np.int64] = counts.values.astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    assert np.array_equal(counts.lengths, responses.lengths), "num_candidates needs one entry per response token"
    assert np.array_equal(bounds[counts.offsets], ids.offsets), "candidate_ids and num_candidates differ"
    targets = np.repeat(np.arange(len(sizes)), sizes)
    is_chosen = ids.values == responses.values[targets]
    missing = np.flatnonzero((np.bincount(targets[is_chosen], minlength=len(sizes)) == 0) & (sizes > 0))
    assert not len(missing), f"response token {missing[:1]} is not among its own candidates"
    fill = np.arange(len(sizes), size)
    is_limited = np.concatenate([sizes > 0, np.ones(len(fill), bool)])
    values = np.concatenate([ids.values.astype(np.int64), np.zeros(len(fill), np.int64)])
    order = np.argsort(values, kind="stable")
    return Candidates(
        values[order],
        on_device(values[order], device),
        on_device(np.concatenate([targets, fill])[order], device),
        on_device(is_limited, device),
    )
