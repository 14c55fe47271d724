"""Aggregate token losses to one number, divided by counts of the whole mini-batch.

Because every denominator is global, the shares of micro-batches and ranks sum to the value of one big batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.types import BatchTotals


def aggregate(
    token_values: Tensor,
    mask: Tensor,
    mode: str,
    totals: BatchTotals,
    sequence_tokens: Tensor | None = None,
    group_tokens: Tensor | None = None,
) -> Tensor:
    """Return this micro-batch's share of the mini-batch's loss, a scalar.

    - ``token-mean``: the mean over all tokens of the mini-batch.
    - ``token-sum``: their sum.
    - ``seq-mean-token-sum``: sum over each sequence, mean over sequences.
    - ``seq-mean-token-mean``: mean over each sequence, mean over sequences; a long response has the same weight as a
      short one.
    - ``seq-mean-token-sum-norm``: sum over each sequence divided by ``totals.max_response_tokens``, mean over sequences
      (Dr. GRPO, 2503.20783: a constant instead of the length).
    - ``prompt-mean``: mean over the tokens of all responses to a prompt, mean over prompts (ScaleRL, 2510.13786).

    Args:
        token_values: [B, T]; values outside the mask, including NaN, are ignored.
        mask: [B, T] bool.
        totals: counts over the mini-batch. Sequences are rows with a true entry: a failed sample is not one. The rows
            of an episode are one sequence, wherever they are.
        sequence_tokens: [B] true entries in all rows of the row's sequence; None if each row is a sequence.
        group_tokens: [B] true entries in all rows of the row's group; needed by ``prompt-mean``.

    Returns:
        Zero, attached to the graph, for a micro-batch without a valid token.
    """
    valid = torch.where(mask, token_values, 0.0)
    num_tokens, num_sequences = max(totals.num_tokens, 1.0), max(totals.num_sequences, 1.0)
    if mode == "token-mean":
        return valid.sum() / num_tokens
    if mode == "token-sum":
        return valid.sum()
    if mode == "seq-mean-token-sum":
        return valid.sum() / num_sequences
    if mode == "seq-mean-token-mean":
        tokens = mask.sum(-1) if sequence_tokens is None else sequence_tokens
        return (valid.sum(-1) / tokens.clamp(min=1)).sum() / num_sequences
    if mode == "seq-mean-token-sum-norm":
        return valid.sum() / (num_sequences * totals.max_response_tokens)
    if mode == "prompt-mean":
        assert group_tokens is not None, "loss_aggregation=prompt-mean needs group_tokens, but the batch has none"
        return (valid.sum(-1) / group_tokens.clamp(min=1)).sum() / max(totals.num_prompts, 1.0)
    raise ValueError(
        f"loss_aggregation is {mode!r}; expected token-mean, token-sum, seq-mean-token-sum, seq-mean-token-mean, "
        f"seq-mean-token-sum-norm or prompt-mean."
    )


def token_share(token_values: Tensor, mask: Tensor, totals: BatchTotals) -> Tensor:
    """Return this micro-batch's share of a metric's mean over the mini-batch's tokens, a scalar without gradient."""
    return aggregate(token_values.detach().float(), mask, "token-mean", totals)
