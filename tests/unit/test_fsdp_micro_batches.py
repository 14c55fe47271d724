"""Rows to forward passes: what is spread evenly over them."""

from __future__ import annotations

import numpy as np
import torch

from verl_like.backends.fsdp.micro_batches import MicroBatchPlan
from verl_like.protocol import DataProto, Ragged

ROWS = [
    60,
    50,
    10,
    10,
    10,
    10,
    10,
    10,
    10,
]  # tokens, of which the last is never fed to the model: 171 in all, two passes of at most 101


def tokens_of_passes(balance_by: str) -> list[list[int]]:
    responses = np.array(ROWS) - 1
    rows = DataProto(
        {
            "prompt_ids": Ragged.from_lengths(np.zeros(len(ROWS), np.int32), np.ones(len(ROWS), np.int64)),
            "response_ids": Ragged.from_lengths(np.zeros(int(responses.sum()), np.int32), responses),
        }
    )
    plan = MicroBatchPlan(rows, max_tokens=101, remove_padding=True, balance_by=balance_by, device=torch.device("cpu"))
    return [sorted((ROWS[row] for row in batch.rows), reverse=True) for batch in plan.passes(plan.num_micro_batches)]


def test_tokens_are_spread_evenly_by_default() -> None:
    assert sorted(map(sum, tokens_of_passes("tokens"))) == [90, 90]


def spread_of_squares(passes: list[list[int]]) -> int:
    squares = [sum(n * n for n in tokens) for tokens in passes]
    return max(squares) - min(squares)


def test_attention_spreads_squares_and_keeps_to_the_budget_of_tokens() -> None:
    passes = tokens_of_passes("attention")
    assert max(sum(n - 1 for n in tokens) for tokens in passes) <= 101
    assert spread_of_squares(passes) < spread_of_squares(tokens_of_passes("tokens"))
