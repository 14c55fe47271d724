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
_OF_ANOTHER_RANK = -1  # in place of a token id; no part of the vocabulary has it


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of each of ``K_r`` targets.

    Args:
        ids: [N] int64 token ids, in any order.
        targets: [N] int64, the index of the target of which each id is a candidate.
        is_limited: [K_r] bool, false for targets with the whole vocabulary as candidates.
    """

    ids: Tensor
    targets: Tensor
    is_limited: Tensor

    def at(self, positions: Tensor) -> Candidates:
        """Return the candidates of the targets at these positions, [k] int64."""
        number = torch.full_like(self.is_limited, -1, dtype=torch.int64)
        number[positions] = torch.arange(len(positions), device=positions.device)
        # Without selection of the ids, whose number the host would have to wait for.
        targets = number[self.targets]
        ids = torch.where(targets < 0, _OF_ANOTHER_RANK, self.ids)
        return Candidates(ids, targets.clamp_(min=0), self.is_limited[positions])

    def restrict(self, logits: Tensor, start: int) -> Tensor:
        """Replace the logits of tokens that are no candidates by ``OUTSIDE``, in place.

        Args:
            logits: [K_r, v] of the tokens ``start`` to ``start + v`` of the vocabulary.
        """
        width = logits.shape[1]
        columns = self.ids - start
        columns = torch.where((columns >= 0) & (columns < width), columns, width)  # one more column takes the others
        is_outside = self.is_limited[:, None].repeat(1, width + 1)
        is_outside[self.targets, columns] = False
        return logits.masked_fill_(is_outside[:, :width], OUTSIDE)


def candidates_of(ids: Ragged, counts: Ragged, responses: Ragged, *, size: int, device: torch.device) -> Candidates:
    """Return the candidates of the response tokens of some rows.

    Args:
        ids: column ``candidate_ids`` of the rows, the sets of all tokens of a row after each other.
        counts: column ``num_candidates``; 0 for tokens with the whole vocabulary as candidates.
        responses: column ``response_ids``.
        size: number of targets, those that fill up a pass included; they are not limited.
    """
    sizes: NDArray[np.int64] = counts.values.astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    assert np.array_equal(counts.lengths, responses.lengths), "num_candidates needs one entry per response token"
    assert np.array_equal(bounds[counts.offsets], ids.offsets), "candidate_ids and num_candidates differ"
    targets = np.repeat(np.arange(len(sizes)), sizes)
    is_chosen = ids.values == responses.values[targets]
    missing = np.flatnonzero((np.bincount(targets[is_chosen], minlength=len(sizes)) == 0) & (sizes > 0))
    assert not len(missing), f"response token {missing[:1]} is not among its own candidates"
    is_limited = np.zeros(size, bool)
    is_limited[: len(sizes)] = sizes > 0
    return Candidates(
        on_device(ids.values.astype(np.int64), device), on_device(targets, device), on_device(is_limited, device)
    )
