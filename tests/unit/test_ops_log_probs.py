"""Chunked statistics equal brute force, whatever the chunk."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from verl_like.ops.log_probs import OutputLayer, TokenStatsFunction


def inputs(num_tokens: int = 13, vocab: int = 50) -> tuple[Tensor, nn.Parameter, nn.Parameter, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(num_tokens, 8, requires_grad=True),
        nn.Parameter(torch.randn(vocab, 8)),
        nn.Parameter(torch.randn(vocab)),
        torch.randint(0, vocab, (num_tokens,)),
    )


def test_statistics_equal_brute_force() -> None:
    hidden, weight, bias, targets = inputs()
    layer = OutputLayer(weight=weight, bias=bias, softcap=3.0)
    found = TokenStatsFunction(chunk_tokens=4)(
        hidden, layer, targets, temperature=0.6, entropy=True, sum_pi_squared=True
    )
    probs = torch.softmax(3.0 * torch.tanh((hidden.double() @ weight.double().T + bias) / 3.0) / 0.6, -1)
    torch.testing.assert_close(found.log_probs.double(), probs.log()[range(13), targets], atol=1e-5, rtol=0)
    assert found.entropy is not None
    torch.testing.assert_close(found.entropy.double(), -(probs * probs.log()).sum(-1), atol=1e-5, rtol=0)
    assert found.sum_pi_squared is not None
    torch.testing.assert_close(found.sum_pi_squared.double(), probs.square().sum(-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("chunk_tokens", [1, 5, 13, 100])
def test_chunk_size_changes_neither_values_nor_gradients(chunk_tokens: int) -> None:
    results = []
    for size in (chunk_tokens, 13):
        hidden, weight, bias, targets = inputs()
        layer = OutputLayer(weight=weight, bias=bias)
        stats = TokenStatsFunction(chunk_tokens=size)(hidden, layer, targets, temperature=0.6, entropy=True)
        assert stats.entropy is not None
        (stats.log_probs.square().sum() + stats.entropy.square().sum()).backward()
        results.append((stats.log_probs, stats.entropy, hidden.grad, weight.grad, bias.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_what_was_not_asked_for_is_none() -> None:
    hidden, weight, _, targets = inputs()
    stats = TokenStatsFunction(chunk_tokens=4)(hidden, OutputLayer(weight=weight), targets, temperature=1.0)
    assert stats.entropy is None
    assert stats.sum_pi_squared is None


def test_entropy_of_a_certain_token_is_zero_with_a_finite_gradient() -> None:
    hidden = torch.tensor([[1000.0, 0.0]], requires_grad=True)
    stats = TokenStatsFunction(chunk_tokens=4)(
        hidden, OutputLayer(weight=torch.eye(2)), torch.tensor([0]), temperature=1.0, entropy=True
    )
    assert stats.entropy is not None
    assert stats.entropy.item() == 0
    stats.entropy.sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


def test_logits_of_more_than_one_chunk_never_exist() -> None:
    hidden, weight, _, targets = inputs(num_tokens=4096, vocab=2000)
    whole = 4096 * 2000 * 4
    with torch.profiler.profile(profile_memory=True) as profile:
        stats = TokenStatsFunction(chunk_tokens=128)(
            hidden, OutputLayer(weight=weight), targets, temperature=1.0, entropy=True
        )
        assert stats.entropy is not None
        (stats.log_probs.sum() + stats.entropy.sum()).backward()
    held, peak = 0, 0
    # Allocations in order of time add up to what is held.
    for event in sorted(
        (e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    ):
        held += event.nbytes()
        peak = max(peak, held)
    assert 0 < peak < whole / 2
    assert hidden.grad is not None


def test_a_chunk_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="log_prob_chunk_tokens is 0"):
        TokenStatsFunction(chunk_tokens=0)
