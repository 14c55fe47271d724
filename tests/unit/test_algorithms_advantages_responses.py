"""Responses without padding: sums within each of them, and the way to padded tensors and back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.advantages.packed import BLOCK, Responses

LENGTHS = [0, 1, BLOCK - 1, BLOCK, 0, BLOCK + 1, 5 * BLOCK + 7, 3]


def responses(lengths: list[int], mask: Tensor | None = None, **more: Tensor) -> Responses:
    return Responses(
        lengths=torch.tensor(lengths, dtype=torch.int64),
        response_mask=torch.ones(sum(lengths), dtype=torch.bool) if mask is None else mask,
        scores=more.pop("scores", torch.zeros(len(lengths))),
        group_ids=torch.zeros(len(lengths), dtype=torch.int64),
        **more,
    )


def by_hand(tokens: Tensor, lengths: list[int], discount: float) -> list[float]:
    found: list[float] = []
    for row in tokens.split(lengths):
        running, sums = 0.0, []
        for value in reversed(row.tolist()):
            running = value + discount * running
            sums.append(running)
        found += sums[::-1]
    return found


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("lengths", [LENGTHS, [], [0, 0], [1], [2 * BLOCK]])
def test_sums_to_go_are_those_of_each_response_by_itself(lengths: list[int], discount: float) -> None:
    torch.manual_seed(0)
    tokens = torch.randn(sum(lengths), dtype=torch.float64)
    found = responses(lengths).sums_to_go(tokens, discount)
    assert found.tolist() == pytest.approx(by_hand(tokens, lengths, discount), rel=1e-12, abs=1e-12)


def test_what_is_not_finite_stays_in_its_response() -> None:
    tokens = torch.zeros(sum(LENGTHS), dtype=torch.float64)
    start = sum(LENGTHS[:6])
    tokens[start + 2 * BLOCK] = torch.nan
    is_nan = responses(LENGTHS).sums_to_go(tokens, 0.9).isnan()
    assert is_nan.nonzero()[:, 0].tolist() == list(range(start, start + 2 * BLOCK + 1))


def test_the_score_is_on_the_last_chosen_token_and_penalties_where_they_arise() -> None:
    mask = torch.tensor([True, True, False, False, True, False])
    some = responses(
        [3, 1, 2], mask, scores=torch.tensor([1.0, 9.0, 2.0]), penalties=torch.tensor([0.5, 0, 0, 0, 0, 0])
    )
    assert some.token_rewards().tolist() == [-0.5, 1.0, 0.0, 0.0, 2.0, 0.0]
    assert some.rewards().tolist() == [0.5, 0.0, 2.0], "where nothing was chosen nothing is earned"
    assert some.num_chosen().tolist() == [2, 0, 1]


def test_closing_up_leaves_out_what_was_not_chosen_and_opening_puts_zeros_there() -> None:
    mask = torch.tensor([True, False, True, False, True])
    some = responses([3, 1, 1], mask, values=torch.arange(5.0))
    closed = some.without_observations()
    assert closed.lengths.tolist() == [2, 0, 1]
    assert closed.values is not None
    assert closed.values.tolist() == [0.0, 2.0, 4.0]
    assert some.with_observations(closed.values + 1).tolist() == [1.0, 0.0, 3.0, 0.0, 5.0]


def test_padding_and_back_is_the_same() -> None:
    tokens = torch.arange(1.0, sum(LENGTHS) + 1)
    some = responses(LENGTHS, values=tokens, scores=torch.ones(len(LENGTHS)))
    padded = some.padded()
    assert padded.rewards.shape == (len(LENGTHS), max(LENGTHS))
    assert padded.rewards.sum(-1).tolist() == [float(length > 0) for length in LENGTHS]
    assert some.unpad(some.pad(tokens)).tolist() == tokens.tolist()
    assert Responses.of_padded(padded).rewards().tolist() == some.rewards().tolist()


def test_scores_that_are_not_finite_are_named_by_row() -> None:
    with pytest.raises(AssertionError, match=r"rows \[1\] are not finite"):
        responses([1, 1], scores=torch.tensor([0.0, torch.nan])).rewards()
