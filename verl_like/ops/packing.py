"""From rows of prompt and response ids to what a model's forward takes, and back from its outputs to rows.

Two layouts give the same numbers: *packed*, all rows in one sequence ``[1, K]`` with position ids that restart, and
*padded*, ``[B, L]`` with zeros on the right and an attention mask. The last response token predicts nothing that
anybody asks for, so it is left out of the input: a row of P prompt and R response tokens costs P + R - 1 positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.ops.attention import PaddedGroup, padded_groups
from verl_like.protocol import Ragged


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInputs:
    """One forward pass. ``B`` rows, ``K`` input tokens of all rows, ``K_r`` response tokens of all rows.

    Args:
        input_ids, position_ids: int64, [1, K] when packed, else [B, L].
        predictors: [K_r] int64 indices into the flattened positions; the hidden state at ``predictors[i]`` predicts
            ``targets[i]``, in row order.
        targets: [K_r] int64, the response tokens.
        attention_mask: [B, L] bool when padded, else None.
        cu_seqlens: [B + 1] int32, where each row starts in the packed sequence; None when padded.
        max_seqlen: the longest row's input tokens.
        groups: neighbouring rows of similar length, for kernels that want them padded; empty when padded.
    """

    input_ids: Tensor
    position_ids: Tensor
    predictors: Tensor
    targets: Tensor
    attention_mask: Tensor | None
    cu_seqlens: Tensor | None
    max_seqlen: int
    groups: tuple[PaddedGroup, ...]


def input_lengths(prompts: Ragged, responses: Ragged) -> NDArray[np.int64]:
    """[B] positions each row takes in a forward pass: prompt plus response, less the last token.

    Raises:
        ValueError: for an empty prompt, because nothing predicts the first response token then.
    """
    if len(prompts) and int(prompts.lengths.min()) == 0:
        row = int(np.argmin(prompts.lengths))
        raise ValueError(
            f"row {row} has an empty prompt; the first response token needs a token before it. Add a start token to it."
        )
    lengths: NDArray[np.int64] = prompts.lengths + np.maximum(responses.lengths - 1, 0)
    return lengths


def pack_rows(prompts: Ragged, responses: Ragged, *, remove_padding: bool, device: torch.device) -> ModelInputs:
    """The inputs of one forward pass over these rows, in their order (sorted by length,
    attention is cheaper on CPU).
    """
    lengths = input_lengths(prompts, responses)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    position_ids = _ranges(np.zeros(len(lengths), np.int64), lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    # Where each packed position reads from: the prompt while the position is inside it, else the response.
    in_prompt = position_ids < prompts.lengths[rows]
    ids = np.empty(len(position_ids), np.int64)
    ids[in_prompt] = prompts.values
    ids[~in_prompt] = responses.values[
        (responses.offsets[:-1] - prompts.lengths)[rows[~in_prompt]] + position_ids[~in_prompt]
    ]
    predictors = _ranges(starts[:-1] + prompts.lengths - 1, responses.lengths)
    targets = torch.from_numpy(responses.values.astype(np.int64)).to(device)
    max_seqlen = int(lengths.max(initial=0))
    if remove_padding:
        return ModelInputs(
            input_ids=torch.from_numpy(ids).to(device)[None],
            position_ids=torch.from_numpy(position_ids).to(device)[None],
            predictors=torch.from_numpy(predictors).to(device),
            targets=targets,
            attention_mask=None,
            cu_seqlens=torch.from_numpy(starts.astype(np.int32)).to(device),
            max_seqlen=max_seqlen,
            groups=padded_groups(lengths, device=device),
        )
    padded = np.zeros((len(lengths), max_seqlen), np.int64)
    valid = np.arange(max_seqlen) < lengths[:, None]
    padded[valid] = ids
    # A packed position moves right by the padding of all rows before its own.
    shift = np.arange(len(lengths)) * max_seqlen - starts[:-1]
    return ModelInputs(
        input_ids=torch.from_numpy(padded).to(device),
        position_ids=torch.arange(max_seqlen, device=device).expand(len(lengths), -1),
        predictors=torch.from_numpy(predictors + np.repeat(shift, responses.lengths)).to(device),
        targets=targets,
        attention_mask=torch.from_numpy(valid).to(device),
        cu_seqlens=None,
        max_seqlen=max_seqlen,
        groups=(),
    )


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """``start, start + 1, ...`` for ``length`` steps, for each pair, one after the other."""
    before = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - before, lengths)
    return places


def valid_mask(lengths: NDArray[np.int64], *, device: torch.device) -> Tensor:
    """[B, T] bool, true on the first ``lengths[i]`` places of row i; T is the longest row."""
    return torch.from_numpy(np.arange(int(lengths.max(initial=0))) < lengths[:, None]).to(device)


def to_padded(packed: Tensor, valid: Tensor) -> Tensor:
    """[K_r] values of all rows one after the other -> [B, T], zero where not ``valid``; keeps the gradient."""
    return packed.new_zeros(valid.shape).masked_scatter(valid, packed)
