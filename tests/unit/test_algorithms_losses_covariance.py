"""Covariance ranks: places from the top, ties, and that only the order matters."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_like.algorithms.covariance import covariance_ranks


def test_covariance_ranks_by_hand() -> None:
    # Both centred: log-probs -2, -1, 0, 3 and advantages 1, -1, -3, 3; products -2, 1, 0, 9.
    log_probs, advantages = torch.tensor([-7.0, -6.0, -5.0, -2.0]), torch.tensor([1.5, -0.5, -2.5, 3.5])
    assert covariance_ranks(log_probs, advantages).tolist() == [0.75, 0.25, 0.5, 0.0]


def test_a_mini_batch_without_advantages_chooses_no_token() -> None:
    ranks = covariance_ranks(-torch.rand(50, generator=torch.Generator().manual_seed(1)), torch.full((50,), 0.1))
    assert ranks.tolist() == pytest.approx([49 / 50] * 50)


def test_ties_share_their_lowest_rank() -> None:
    # Products 1, 1, 1, 1 but for the two in the middle, which are 0.
    ranks = covariance_ranks(torch.tensor([-1.0, -2.0, -2.0, -3.0]), torch.tensor([1.0, 0.0, 0.0, -1.0]))
    assert ranks.tolist() == [0.25, 0.75, 0.75, 0.25]


def test_none_and_one_token() -> None:
    assert covariance_ranks(torch.zeros(0), torch.zeros(0)).shape == (0,)
    assert covariance_ranks(torch.tensor([-1.0]), torch.tensor([2.0])).tolist() == [0.0]


def test_a_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(AssertionError, match="must be finite"):
        covariance_ranks(torch.tensor([-1.0, float("nan")]), torch.tensor([1.0, 2.0]))


@given(seed=st.integers(0, 10_000), num_tokens=st.integers(1, 200))
def test_ranks_count_the_tokens_above_whatever_their_order(seed: int, num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = -torch.rand(num_tokens, generator=generator) * 5
    advantages = torch.randn(num_tokens, generator=generator)
    ranks = covariance_ranks(log_probs, advantages)
    covariances = (log_probs.double() - log_probs.double().mean()) * (advantages.double() - advantages.double().mean())
    above = (covariances[None, :] >= covariances[:, None]).sum(-1) - 1
    assert torch.allclose(ranks, above / num_tokens)
    assert ranks.dtype == torch.float32 and bool((ranks >= 0).all()) and bool((ranks < 1).all())
    order = torch.randperm(num_tokens, generator=generator)
    # Sums in another order differ in the last bit, so equal places are compared, not equal sums.
    assert (covariance_ranks(log_probs[order], advantages[order]) - ranks[order]).abs().max() <= 1.5 / num_tokens
    share = 0.1
    assert int((ranks < share).sum()) <= share * num_tokens + 1
