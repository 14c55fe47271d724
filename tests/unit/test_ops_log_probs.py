"""Statistics made tile by tile equal brute force, and so do their gradients, whatever the tiles."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from verl_like.ops import tiles
from verl_like.ops.log_probs import TokenStats, TokenStatsFunction
from verl_like.ops.tiles import OutputLayer

TOKENS, VOCABULARY = 64, 8192  # 2 MiB of logits


def inputs(
    num_tokens: int = TOKENS, vocabulary: int = VOCABULARY, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, nn.Parameter, nn.Parameter, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(num_tokens, 8).to(dtype).requires_grad_(),
        nn.Parameter(torch.randn(vocabulary, 8).to(dtype)),
        nn.Parameter(torch.randn(vocabulary).to(dtype)),
        torch.randint(0, vocabulary, (num_tokens,)),
    )


def brute_force(hidden: Tensor, layer: OutputLayer, targets: Tensor, *, temperature: float) -> TokenStats:
    logits = hidden.double() @ layer.weight.double().T + (0 if layer.bias is None else layer.bias)
    if layer.softcap:
        logits = layer.softcap * torch.tanh(logits / layer.softcap)
    log_probs = torch.log_softmax(logits / temperature, -1)
    probs = log_probs.exp()
    return TokenStats(log_probs[range(len(targets)), targets], -(probs * log_probs).sum(-1), probs.square().sum(-1))


def gradients(stats: TokenStats, *tensors: Tensor) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 2, len(stats.log_probs))
    loss = (stats.log_probs * weights).sum()
    if stats.entropy is not None:
        loss = loss + (stats.entropy * weights.flip(0)).sum()
    return torch.autograd.grad(loss, tensors)


# Several tiles with some kept for backward, and one.
@pytest.mark.parametrize("budget_mib", [1, 512])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("has_entropy", [False, True])
def test_statistics_and_gradients_equal_brute_force(budget_mib: int, softcap: float, has_entropy: bool) -> None:
    hidden, weight, bias, targets = inputs()
    layer = OutputLayer(weight=weight, bias=bias, softcap=softcap)
    found = TokenStatsFunction(budget_mib=budget_mib)(
        hidden, layer, targets, temperature=0.6, entropy=has_entropy, sum_pi_squared=True
    )
    expected = brute_force(hidden, layer, targets, temperature=0.6)
    expected = expected if has_entropy else expected._replace(entropy=None)
    for one, other in zip(found, expected, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=1e-5)
    assert (found.entropy is None) is not has_entropy
    for one, other in zip(
        gradients(found, hidden, weight, bias), gradients(expected, hidden, weight, bias), strict=True
    ):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_a_budget_cuts_logits_into_tiles_of_which_some_are_kept() -> None:
    count = tiles.num_tiles(TOKENS, VOCABULARY, budget=2**20, on_cpu=True)
    kept = tiles.num_kept(4 * TOKENS * VOCABULARY // count, budget=2**20)
    assert 0 < kept < count
    assert tiles.num_tiles(TOKENS, VOCABULARY, budget=512 * 2**20, on_cpu=True) == 1


def test_bfloat16_is_as_close_as_it_can_be() -> None:
    hidden, weight, _, targets = inputs(dtype=torch.bfloat16)
    layer = OutputLayer(weight=weight)
    found = TokenStatsFunction(budget_mib=1)(hidden, layer, targets, temperature=1.0, entropy=True)
    expected = brute_force(hidden, layer, targets, temperature=1.0)
    assert found.log_probs.dtype == torch.float32
    torch.testing.assert_close(found.log_probs.double(), expected.log_probs, atol=0.05, rtol=0)
    for one, other in zip(gradients(found, hidden, weight), gradients(expected, hidden, weight), strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one, other, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("budget_mib", [1, 512])
def test_logits_of_16_bits_in_float32_are_those_of_float32(budget_mib: int) -> None:
    """Products of eight terms with logits about 3: rounded to eight bits they are off by up to 2^-8."""
    hidden, weight, _, targets = inputs(dtype=torch.bfloat16)
    expected = brute_force(hidden, OutputLayer(weight=weight), targets, temperature=1.0)._replace(entropy=None)
    gaps = []
    for in_float32 in (False, True):
        layer = OutputLayer(weight=weight, in_float32=in_float32)
        found = TokenStatsFunction(budget_mib=budget_mib)(hidden, layer, targets, temperature=1.0)
        gaps.append((found.log_probs - expected.log_probs).abs().max().item())
        both = (
            gradients(found, hidden, weight),
            torch.autograd.grad(
                (expected.log_probs * torch.linspace(-1, 2, len(targets))).sum(), (hidden, weight), retain_graph=True
            ),
        )
        for one, other in zip(*both, strict=True):
            assert one.dtype == torch.bfloat16
            torch.testing.assert_close(one, other, atol=0.05, rtol=0.02)
    assert gaps[0] > 2**-8 and gaps[1] < 2e-5


def test_a_gpu_is_asked_for_the_float32_sums_of_a_product_in_16_bits() -> None:
    """Make the call of tiles on GPU without a device: PyTorch knows the call, and it writes float32."""
    hidden, weight = (torch.empty(rows, 8, dtype=torch.bfloat16, device="meta") for rows in (3, 5))
    found = torch.empty(3, 5, device="meta")
    assert torch.mm(hidden, weight.t(), torch.float32, out=found) is found


def test_a_frozen_weight_has_no_gradient_and_the_states_have_one() -> None:
    hidden, weight, _, targets = inputs()
    layer = OutputLayer(weight=weight.detach())
    found = TokenStatsFunction(budget_mib=1)(hidden, layer, targets, temperature=1.0)
    expected = brute_force(hidden, layer, targets, temperature=1.0)._replace(entropy=None)
    torch.testing.assert_close(*gradients(found, hidden), *gradients(expected, hidden), atol=1e-5, rtol=1e-4)
    assert weight.grad is None


def test_backward_twice_gives_the_same() -> None:
    hidden, weight, bias, targets = inputs()
    stats = TokenStatsFunction(budget_mib=1)(
        hidden, OutputLayer(weight=weight, bias=bias), targets, temperature=1.0, entropy=True
    )
    assert stats.entropy is not None
    loss = stats.log_probs.sum() + stats.entropy.sum()
    first, second = (torch.autograd.grad(loss, [hidden, weight], retain_graph=True) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_what_was_not_asked_for_is_none() -> None:
    hidden, weight, _, targets = inputs()
    stats = TokenStatsFunction(budget_mib=1)(hidden, OutputLayer(weight=weight), targets, temperature=1.0)
    assert stats.entropy is None
    assert stats.sum_pi_squared is None


def test_no_row_at_all_is_no_error() -> None:
    hidden, weight, _, targets = inputs(num_tokens=0)
    stats = TokenStatsFunction(budget_mib=1)(hidden, OutputLayer(weight=weight), targets, temperature=1.0)
    assert stats.log_probs.shape == (0,)
    assert not torch.autograd.grad(stats.log_probs.sum(), weight)[0].any()


@pytest.mark.parametrize("bias", [None, torch.tensor([0.0, -torch.inf])])
def test_entropy_of_a_certain_token_is_zero_with_a_finite_gradient(bias: Tensor | None) -> None:
    hidden = torch.tensor([[1000.0, 0.0]], requires_grad=True)
    stats = TokenStatsFunction(budget_mib=1)(
        hidden, OutputLayer(weight=torch.eye(2), bias=bias), torch.tensor([0]), temperature=1.0, entropy=True
    )
    assert stats.entropy is not None
    assert stats.entropy.item() == 0
    (5 * stats.entropy.sum()).backward()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("budget_mib", [1, 8])
def test_logits_beyond_the_budget_never_exist(budget_mib: int) -> None:
    hidden, weight, _, targets = inputs(num_tokens=4096, vocabulary=4000)  # 62 MiB of logits
    with torch.profiler.profile(profile_memory=True) as profile:
        stats = TokenStatsFunction(budget_mib=budget_mib)(
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
    of_rows = 40 * targets.nbytes  # sums, statistics and gradients
    assert 0 < peak < budget_mib * 2**20 + of_rows
    assert hidden.grad is not None


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="log_prob_chunk_mib is 0"):
        TokenStatsFunction(budget_mib=0)
