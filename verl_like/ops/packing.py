"""Convert rows of prompt and response ids to a model's inputs, and its outputs back to rows.

Two layouts give the same numbers: *packed*, all rows in one sequence ``[1, K]`` with position ids that restart, and
*padded*, ``[B, L]`` with zeros on the right and an attention mask. The last response token predicts nothing that is
needed, so it is left out of the input: a row of P prompt and R response tokens costs P + R - 1 positions.

Packed rows may share their prompt: it appears once, before them, and costs its P positions once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.ops.candidates import Candidates
from verl_like.ops.device_copies import on_device
from verl_like.ops.matmul import familiar_size
from verl_like.ops.segments import Segments, ranges, segments
from verl_like.ops.ulysses import Piece, SequenceRanks, piece_of
from verl_like.protocol import Ragged

FILLER = 16  # short, so that attention can use its function of short segments


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInputs:
    """Inputs of one forward pass: ``B`` rows, ``K`` input tokens and ``K_r`` response tokens of all rows.

    ``K`` and ``K_r`` are larger if sizes are rounded up.

    Args:
        input_ids, position_ids: int64, [1, K] if packed, otherwise [B, L]. Position ids have a first axis of 3 if the
            model gives pictures a time, a height and a width.
        predictors: [K_r] int64 indices into the flattened positions; the hidden state at ``predictors[i]`` predicts
            ``targets[i]``, in row order.
        targets: [K_r] int64, the response tokens, followed by the padding of rounded sizes.
        num_tokens: tokens of the rows, with shared prompts counted once, without padding.
        num_targets: response tokens, without padding; 0 of a pass that computes nothing.
        attention_mask: [B, L] bool if padded, otherwise None.
        segments: the attention structure of the packed sequence; None if padded.
        piece: this rank's tokens, if ranks share the sequence; the other fields describe the whole sequence.
        candidates: of the targets, if the sampler reported them.
        experts: [K, layers, k] int64 of the flattened positions, -1 where a router chooses itself, if the engine
            reported them.
        pictures: the model's arguments for the pictures of the input, in the order of their tokens, if there are some.
    """

    input_ids: Tensor
    position_ids: Tensor
    predictors: Tensor
    targets: Tensor
    num_tokens: int
    num_targets: int
    attention_mask: Tensor | None
    segments: Segments | None
    piece: Piece | None = None
    candidates: Candidates | None = None
    experts: Tensor | None = None
    pictures: Mapping[str, Tensor] | None = None


def input_lengths(prompts: Ragged, responses: Ragged) -> NDArray[np.int64]:
    """Return [B] positions of each row in a forward pass: prompt plus response, without the last token.

    Raises:
        ValueError: for an empty prompt, because nothing then predicts the first response token.
    """
    if len(prompts) and int(prompts.lengths.min()) == 0:
        row = int(np.argmin(prompts.lengths))
        raise ValueError(
            f"row {row} has an empty prompt; the first response token needs a token before it. Add a start token to it."
        )
    lengths: NDArray[np.int64] = prompts.lengths + np.maximum(responses.lengths - 1, 0)
    return lengths


def pack_rows(
    prompts: Ragged,
    responses: Ragged,
    *,
    remove_padding: bool,
    device: torch.device,
    same_prompt: NDArray[np.int64] | None = None,
    round_up: bool = False,
    sequence_ranks: SequenceRanks | None = None,
) -> ModelInputs:
    """Return the inputs of one forward pass over these rows, in their order (on CPU, attention is cheaper if they are
    sorted by length).

    Args:
        same_prompt: [B] equal numbers for packed rows with equal prompts, which then share it; None if no prompts are
            shared.
        round_up: whether to round packed sizes up to a :func:`familiar_size` with unused tokens.
        sequence_ranks: ranks that share the packed sequence, which unused tokens then pad to a multiple of their
            number.
    """
    packed = _packed(prompts, responses, same_prompt)
    ids, num_tokens = responses.values.astype(np.int64), len(packed.ids)
    if remove_padding:
        if round_up:
            size = familiar_size(len(ids))
            packed = _filled_up(packed, familiar_size(num_tokens))
            packed, ids = packed._replace(predictors=_filled(packed.predictors, size)), _filled(ids, size)
        if sequence_ranks is not None:
            packed = _filled_up(packed, -(-len(packed.ids) // sequence_ranks.size) * sequence_ranks.size)
        targets = on_device(ids, device)
        return ModelInputs(
            input_ids=on_device(packed.ids, device)[None],
            position_ids=on_device(packed.position_ids, device)[None],
            predictors=on_device(packed.predictors, device),
            targets=targets,
            num_tokens=num_tokens,
            num_targets=len(responses.values),
            attention_mask=None,
            segments=segments(packed.lengths, packed.prefix_starts, packed.prefix_lengths, device=device),
            piece=None
            if sequence_ranks is None
            else piece_of(sequence_ranks, len(packed.ids), packed.predictors, device=device),
        )
    assert sequence_ranks is None, "sequence-parallel ranks need packed rows"
    assert same_prompt is None, "padded rows cannot share prompts"
    width = int(packed.lengths.max(initial=0))
    padded = np.zeros((len(packed.lengths), width), np.int64)
    valid = np.arange(width) < packed.lengths[:, None]
    padded[valid] = packed.ids
    # A packed position moves right by the padding of all rows before its own.
    shift = np.arange(len(packed.lengths)) * width - (np.cumsum(packed.lengths) - packed.lengths)
    return ModelInputs(
        input_ids=on_device(padded, device),
        position_ids=torch.arange(width, device=device).expand(len(padded), -1),
        predictors=on_device(packed.predictors + np.repeat(shift, responses.lengths), device),
        targets=on_device(ids, device),
        num_tokens=num_tokens,
        num_targets=len(responses.values),
        attention_mask=on_device(valid, device),
        segments=None,
    )


def input_numbers(
    prompts: Ragged, responses: Ragged, inputs: ModelInputs, same_prompt: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Return [K], for each flattened position of these rows' inputs its number among the positions of all rows, which
    are counted without padding and without sharing; -1 for padding.
    """
    lengths = input_lengths(prompts, responses)
    starts = np.cumsum(lengths) - lengths

    def numbered(column: Ragged, starts: NDArray[np.int64]) -> Ragged:
        return Ragged(ranges(starts, column.lengths), column.offsets)

    packed = _packed(numbered(prompts, starts), numbered(responses, starts + prompts.lengths), same_prompt)
    numbers = np.full(inputs.input_ids.numel(), -1, np.int64)
    if inputs.attention_mask is None:
        numbers[: len(packed.ids)] = packed.ids
    else:
        width = inputs.input_ids.shape[1]
        numbers[(np.arange(width) < lengths[:, None]).reshape(-1)] = packed.ids
    return numbers


class _Packed(NamedTuple):
    ids: NDArray[np.int64]  # [K]
    position_ids: NDArray[np.int64]  # [K]
    predictors: NDArray[np.int64]  # [K_r]
    lengths: NDArray[np.int64]  # [S], of the segments: shared prompts, then the rows
    prefix_starts: NDArray[np.int64]  # [S]
    prefix_lengths: NDArray[np.int64]  # [S]


def _packed(prompts: Ragged, responses: Ragged, same_prompt: NDArray[np.int64] | None) -> _Packed:
    input_lengths(prompts, responses)  # raises for an empty prompt
    num_rows, of_prompt, of_response = len(prompts), prompts.lengths, np.maximum(responses.lengths - 1, 0)
    numbers = np.arange(num_rows) if same_prompt is None else same_prompt
    _, first, number_of, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    # Rows with a shared prompt, and one row of each shared prompt.
    shares, heads = counts[number_of] > 1, first[counts > 1]
    in_row = np.where(shares, 0, of_prompt)  # prompt tokens of the row's own segment
    lengths = np.concatenate([of_prompt[heads], in_row + of_response])
    starts = np.cumsum(lengths) - lengths
    row_starts = starts[len(heads) :]
    head_starts = np.zeros(len(counts), np.int64)
    head_starts[counts > 1] = starts[: len(heads)]
    prompt_starts = np.where(shares, head_starts[number_of], row_starts)

    def pieces(heads: NDArray[np.int64], prompts: NDArray[np.int64], rest: NDArray[np.int64]) -> NDArray[np.int64]:
        """Concatenate values of shared prompts with values of each row's prompt and of the rest of the row."""
        return np.concatenate([heads, np.stack([prompts, rest], axis=1).reshape(-1)])

    none, zeros = np.zeros(len(heads), np.int64), np.zeros(num_rows, np.int64)
    sizes = pieces(of_prompt[heads], in_row, of_response)
    prompt_offsets, response_offsets = prompts.offsets[:-1], len(prompts.values) + responses.offsets[:-1]
    read = ranges(pieces(prompt_offsets[heads], prompt_offsets, response_offsets), sizes)
    return _Packed(
        ids=np.concatenate([prompts.values, responses.values]).astype(np.int64)[read],
        position_ids=ranges(pieces(none, zeros, of_prompt), sizes),
        predictors=ranges(
            pieces(none[:0], prompt_starts + of_prompt - 1, row_starts + in_row),
            pieces(none[:0], np.minimum(responses.lengths, 1), of_response),
        ),
        lengths=lengths,
        prefix_starts=np.concatenate([none, np.where(shares, prompt_starts, 0)]),
        prefix_lengths=np.concatenate([none, np.where(shares, of_prompt, 0)]),
    )


def _filled_up(packed: _Packed, num_tokens: int) -> _Packed:
    """Return ``packed`` with more segments, of at most ``FILLER`` tokens, that fill it up to ``num_tokens``."""
    missing = num_tokens - len(packed.ids)
    segments = np.minimum(FILLER, missing - np.arange(0, missing, FILLER))
    none = np.zeros(len(segments), np.int64)
    return _Packed(
        ids=_filled(packed.ids, num_tokens),
        position_ids=_filled(packed.position_ids, num_tokens),
        predictors=packed.predictors,
        lengths=np.append(packed.lengths, segments),
        prefix_starts=np.append(packed.prefix_starts, none),
        prefix_lengths=np.append(packed.prefix_lengths, none),
    )


def _filled(numbers: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the numbers, padded with zeros to ``size``."""
    return np.pad(numbers, (0, size - len(numbers)))


def valid_mask(lengths: NDArray[np.int64], *, device: torch.device) -> Tensor:
    """Return [B, T] bool, true at the first ``lengths[i]`` positions of row i; T is the longest row."""
    return on_device(np.arange(int(lengths.max(initial=0))) < lengths[:, None], device)


def to_padded(packed: Tensor, valid: Tensor) -> Tensor:
    """Scatter [K_r] concatenated values of all rows to [B, T], zero where not ``valid``; keeps the gradient.

    Values after those of the rows are dropped.
    """
    return packed.new_zeros(valid.shape).masked_scatter(valid, packed)
