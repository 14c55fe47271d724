"""Policy losses: values by hand, gradients in closed form, and what must hold for each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit._policy_losses import WeighedInputs, loss_of
from verl_like.algorithms import policy_losses
from verl_like.algorithms.policy_losses import POLICY_LOSSES, PolicyLoss, policy_loss
from verl_like.algorithms.policy_losses.entry import OPTIONAL_COLUMNS
from verl_like.algorithms.types import BatchTotals, LossInputs, LossOutput, TokenLosses
from verl_like.config.schema import PolicyLossConfig

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
NAMES = sorted(POLICY_LOSSES)
# Bounds that hold some tokens of a random batch in every loss, and shares that choose some of 18 tokens.
CONFIG = PolicyLossConfig(
    clip_ratio_low=0.2,
    clip_ratio_high=0.3,
    clip_ratio_dual=1.4,
    kl_cov_ratio=0.3,
    ppo_kl_coef=0.7,
    dro_beta=0.5,
    clip_cov_ratio=0.2,
    clip_cov_rank_low=0.1,
    clip_cov_rank_high=0.7,
    tau_pos=0.8,
    tau_neg=1.7,
    dppo_max_ratio=1.5,
    vespo_k_pos=1.5,
    vespo_lambda_pos=2.5,
    vespo_k_neg=3.5,
    vespo_lambda_neg=0.5,
    a_star_beta=0.3,
)
# Those whose gradient at ratio 1 is not that of the policy gradient: they move to a distance from the reference.
REGRESSIONS = {"a_star_po"}
# Those whose tokens share a loss through which all log-probs of the response get a gradient.
COUPLED = {"gmpo", "a_star_po"}
TOKEN_SUM = replace(CONFIG, loss_aggregation="token-sum")


def totals_of(mask: Tensor) -> BatchTotals:
    return BatchTotals(num_tokens=float(mask.sum()), num_sequences=float(mask.any(-1).sum()), max_response_tokens=10)


def one_row(
    log_ratios: list[float],
    advantages: list[float],
    *,
    log_prob: float = -3.0,
    ranks: list[float] | None = None,
    weights: list[float] | None = None,
) -> WeighedInputs:
    """Old log-probs are such that the log-ratios come out."""
    mask = torch.ones(1, len(log_ratios), dtype=torch.bool)
    return WeighedInputs(
        log_probs=torch.full((1, len(log_ratios)), log_prob, requires_grad=True),
        old_log_probs=log_prob - torch.tensor([log_ratios]),
        advantages=torch.tensor([advantages]),
        response_mask=mask,
        totals=totals_of(mask),
        weights=None if weights is None else torch.tensor([weights]),
        covariance_rank=torch.tensor([ranks if ranks is not None else [0.99] * len(log_ratios)]),
        ref_log_probs=log_prob - torch.tensor([log_ratios]),
    )


def batch(
    *, rows: int = 6, width: int = 5, dtype: torch.dtype = torch.float64, equal_in_row: bool = False
) -> WeighedInputs:
    """Random rows of 5, 1, 0, 3, 4, 5 tokens, zeros as padding, ratios from about 0.3 to 3; each token has a covariance
    rank of its own.
    """
    generator = torch.Generator().manual_seed(5)
    mask = torch.arange(width) < torch.tensor([5, 1, 0, 3, 4, 5][:rows])[:, None]
    log_probs, shift, advantages, weights = torch.randn(4, rows, width, generator=generator, dtype=torch.float64).to(
        dtype
    )
    log_probs = -0.2 - log_probs.abs()
    if equal_in_row:
        advantages = advantages[:, :1].expand(-1, width)
    ranks = torch.zeros(rows, width, dtype=dtype)
    ranks[mask] = torch.randperm(int(mask.sum()), generator=generator).to(dtype) / mask.sum()
    columns = {
        "log_probs": log_probs,
        "old_log_probs": log_probs - 0.5 * shift,
        "advantages": advantages,
        "weights": weights.abs(),
        "covariance_rank": ranks,
        "ref_log_probs": log_probs - 0.4 * shift.roll(1, 0),
    }
    return WeighedInputs(
        response_mask=mask, totals=totals_of(mask), **{name: torch.where(mask, c, 0.0) for name, c in columns.items()}
    )


def cut(inputs: WeighedInputs, change: Callable[[Tensor], Tensor]) -> WeighedInputs:
    """Return the same bundle with each [B, T] column changed; the totals stay those of the mini-batch."""
    assert inputs.weights is not None and inputs.covariance_rank is not None and inputs.ref_log_probs is not None
    return replace(
        inputs,
        log_probs=change(inputs.log_probs),
        old_log_probs=change(inputs.old_log_probs),
        advantages=change(inputs.advantages),
        response_mask=change(inputs.response_mask),
        weights=change(inputs.weights),
        covariance_rank=change(inputs.covariance_rank),
        ref_log_probs=change(inputs.ref_log_probs),
    )


def run(name: str, inputs: LossInputs, config: PolicyLossConfig) -> tuple[LossOutput, Tensor]:
    """Return the loss and its gradient with respect to the log-probs."""
    log_probs = inputs.log_probs.detach().clone().requires_grad_()
    output = loss_of(POLICY_LOSSES[name], replace(inputs, log_probs=log_probs), config)
    torch.autograd.backward(output.loss)
    assert log_probs.grad is not None
    return LossOutput(loss=output.loss.detach(), metrics=output.metrics), log_probs.grad


def gradient_row(name: str, inputs: LossInputs, config: PolicyLossConfig) -> list[float]:
    return run(name, inputs, config)[1][0].tolist()


# ---- by hand

UP, DOWN = math.log(1.5), math.log(0.5)


def test_ppo_clips_by_hand() -> None:
    # ratios 1.5, 1.5, 0.5, 0.5 against bounds 0.8 .. 1.3
    inputs = one_row([UP, UP, DOWN, DOWN], [2.0, -2.0, 2.0, -2.0])
    output, gradient = run(
        "ppo", inputs, PolicyLossConfig(clip_ratio_low=0.2, clip_ratio_high=0.3, loss_aggregation="token-sum")
    )
    # max(-Ar, -A clip(r)): -2*1.3, 2*1.5, -2*0.5, 2*0.8
    assert float(output.loss) == pytest.approx(-2.6 + 3.0 - 1.0 + 1.6)
    assert float(output.metrics["clip_frac"]) == pytest.approx(0.5)
    assert float(output.metrics["ratio_mean"]) == pytest.approx(1.0)
    # Held tokens have no gradient; elsewhere d(-A r)/d log_prob = -A r.
    assert gradient[0].tolist() == pytest.approx([0.0, 3.0, -1.0, 0.0])


def test_ppo_on_policy_gradient_is_minus_the_advantage_over_the_global_count() -> None:
    inputs = one_row([0.0, 0.0], [1.5, -0.5])
    inputs.totals = BatchTotals(num_tokens=8, num_sequences=4, max_response_tokens=10)
    output, gradient = run("ppo", inputs, PolicyLossConfig())
    assert gradient[0].tolist() == pytest.approx([-1.5 / 8, 0.5 / 8])
    assert float(output.metrics["clip_frac"]) == 0.0 and float(output.metrics["ppo_kl"]) == 0.0


def test_ppo_dual_clip_caps_negative_advantages_only() -> None:
    five = math.log(5.0)
    output, gradient = run(
        "ppo", one_row([five, five], [-1.0, 1.0]), PolicyLossConfig(clip_ratio_dual=3.0, loss_aggregation="token-sum")
    )
    assert float(output.loss) == pytest.approx(3.0 - 1.2)
    assert float(output.metrics["clip_frac_dual"]) == pytest.approx(0.5)
    assert gradient[0].tolist() == pytest.approx([0.0, 0.0])


def test_ppo_kl_is_the_k3_estimate_of_old_against_new() -> None:
    output, _ = run("ppo", one_row([0.3], [1.0]), PolicyLossConfig())
    assert float(output.metrics["ppo_kl"]) == pytest.approx(math.exp(0.3) - 1 - 0.3, rel=1e-5)


def test_gspo_gives_each_token_the_ratio_of_its_response() -> None:
    inputs = one_row([0.3, -0.1], [2.0, -1.0])
    output, gradient = run("gspo", inputs, PolicyLossConfig(loss_aggregation="seq-mean-token-mean"))
    ratio = math.exp(0.1)
    assert float(output.loss) == pytest.approx(-ratio * (2.0 - 1.0) / 2)
    assert gradient[0].tolist() == pytest.approx([-ratio * 2.0 / 2, ratio / 2])
    assert float(output.metrics["ratio_mean"]) == pytest.approx(ratio)


def test_gspo_clips_a_response_as_a_whole() -> None:
    # Its ratio is exp(0.3); alone, the second token would be inside its bounds.
    output, gradient = run("gspo", one_row([0.6, 0.0], [1.0, 1.0]), PolicyLossConfig())
    assert float(output.loss) == pytest.approx(-1.2) and not gradient.any()
    assert float(output.metrics["clip_frac"]) == 1.0


def test_luspo_is_gspo_with_each_response_weighted_by_its_length() -> None:
    """Value and gradient of (1/G) sum over responses of length * max(-A s, -A clip(s)), in float64."""
    inputs = replace(batch(equal_in_row=True), weights=None)
    log_probs = inputs.log_probs.clone().requires_grad_()
    lengths = inputs.response_mask.sum(-1).double()
    mean = ((log_probs - inputs.old_log_probs) * inputs.response_mask).sum(-1) / lengths.clamp(min=1)
    ratio, advantages = mean.exp(), inputs.advantages[:, 0]
    per_response = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.3))
    expected = (lengths * per_response).sum() / 5  # a failed sample counts in no mean
    torch.autograd.backward(expected)
    output, gradient = run("gspo", inputs, replace(CONFIG, loss_aggregation="seq-mean-token-sum"))
    assert float(output.loss) == pytest.approx(float(expected.detach()), rel=1e-12)
    assert log_probs.grad is not None and torch.allclose(gradient, log_probs.grad, rtol=1e-9, atol=1e-12)


def test_cispo_clips_the_weight_and_keeps_the_gradient() -> None:
    output, gradient = run(
        "cispo", one_row([UP, DOWN, 0.1], [2.0, 2.0, -1.0]), PolicyLossConfig(loss_aggregation="token-sum")
    )
    # -clip(r) A log_prob: weights 1.2, 0.8, e^0.1
    assert float(output.loss) == pytest.approx(1.2 * 2 * 3 + 0.8 * 2 * 3 - math.exp(0.1) * 3, rel=1e-5)
    assert gradient[0].tolist() == pytest.approx([-2.4, -1.6, math.exp(0.1)])
    assert float(output.metrics["clip_frac"]) == pytest.approx(2 / 3)


def test_sapo_by_hand() -> None:
    output, gradient = run(
        "sapo", one_row([UP, UP], [1.0, -1.0]), PolicyLossConfig(tau_pos=1.0, tau_neg=2.0, loss_aggregation="token-sum")
    )
    high, low = 1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(-1.0))
    assert float(output.loss) == pytest.approx(-4 * high + 2 * low, rel=1e-5)
    assert gradient[0].tolist() == pytest.approx([-4 * high * (1 - high) * 1.5, 4 * low * (1 - low) * 1.5], rel=1e-5)


def test_vespo_weighs_a_response_by_the_product_of_its_ratios() -> None:
    # W = 1.5 * 0.5 = 0.75 for both tokens, whose advantages differ in sign.
    output, gradient = run("vespo", one_row([UP, DOWN], [2.0, -1.0]), PolicyLossConfig(loss_aggregation="token-sum"))
    positive = math.exp(3) * 0.75**2 * math.exp(-3 * 0.75)
    negative = math.exp(2) * 0.75**3 * math.exp(-2 * 0.75)
    assert gradient[0].tolist() == pytest.approx([-2 * positive, negative], rel=1e-5)
    assert float(output.loss) == pytest.approx(-2 * positive * -3 + negative * -3, rel=1e-5)
    assert float(output.metrics["sequence_weight_mean"]) == pytest.approx((positive + negative) / 2, rel=1e-5)
    assert float(output.metrics["ratio_mean"]) == pytest.approx(1.0)


@pytest.mark.parametrize("log_ratios", [[60.0, 60.0], [-60.0, -60.0]])
def test_vespo_hardly_learns_from_a_response_far_from_the_old_policy(log_ratios: list[float]) -> None:
    for advantage in (1.0, -1.0):
        gradient = gradient_row("vespo", one_row(log_ratios, [advantage] * 2), replace(TOKEN_SUM))
        assert max(map(abs, gradient)) < 1e-9


def test_a_star_po_by_hand() -> None:
    # Log-ratios to the reference 0.5 and 1.5; the response's advantage is 0.25.
    config = PolicyLossConfig(a_star_beta=0.2, loss_aggregation="seq-mean-token-mean")
    output, gradient = run("a_star_po", one_row([0.5, 1.5], [0.25, 0.25]), config)
    assert float(output.loss) == pytest.approx((0.2 * 2.0 - 0.25) ** 2)
    assert gradient[0].tolist() == pytest.approx([2 * 0.2 * (0.4 - 0.25)] * 2)


def test_a_star_po_is_the_mean_square_over_responses_in_float64() -> None:
    inputs = replace(batch(equal_in_row=True), weights=None)
    assert inputs.ref_log_probs is not None
    log_probs = inputs.log_probs.clone().requires_grad_()
    totals = ((log_probs - inputs.ref_log_probs) * inputs.response_mask).sum(-1)
    errors = (0.3 * totals - inputs.advantages[:, 0]).square()[inputs.response_mask.any(-1)]
    torch.autograd.backward(errors.mean())
    output, gradient = run("a_star_po", inputs, replace(CONFIG, loss_aggregation="seq-mean-token-mean"))
    assert float(output.loss) == pytest.approx(float(errors.mean().detach()), rel=1e-12)
    assert log_probs.grad is not None and torch.allclose(gradient, log_probs.grad, rtol=1e-9, atol=1e-12)


def test_a_star_po_has_no_gradient_at_the_optimal_policy() -> None:
    # beta log(pi / ref) = A for the whole response.
    gradient = gradient_row("a_star_po", one_row([1.0, -0.5], [0.15, 0.15]), replace(TOKEN_SUM, a_star_beta=0.3))
    assert gradient == pytest.approx([0.0, 0.0], abs=1e-7)


def test_gmpo_takes_the_geometric_mean_of_clipped_ratios() -> None:
    output, gradient = run(
        "gmpo",
        one_row([0.9, -0.9, 0.2], [2.0, 2.0, 2.0]),
        PolicyLossConfig(clip_ratio_low=0.4, clip_ratio_high=0.4, loss_aggregation="seq-mean-token-mean"),
    )
    # Positive advantage: only what is above 0.4 is held.
    ratio = math.exp((0.4 - 0.9 + 0.2) / 3)
    assert float(output.loss) == pytest.approx(-2 * ratio)
    assert gradient[0].tolist() == pytest.approx([0.0, -2 * ratio / 3, -2 * ratio / 3])
    assert float(output.metrics["clip_frac"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ["gspo", "gmpo"])
def test_the_mean_of_a_response_has_each_log_ratio_in_it_as_it_is(name: str) -> None:
    # Were the first held at -20 nats, the mean would be -20 / 3.
    output, gradient = run(name, one_row([-30.0, 0.0, 0.0], [1.0, 1.0, 1.0]), TOKEN_SUM)
    assert float(output.loss) == pytest.approx(-3 * math.exp(-10.0))
    assert gradient[0].tolist() == pytest.approx([-math.exp(-10.0)] * 3)


@pytest.mark.parametrize("name", ["gspo", "gmpo"])
@pytest.mark.parametrize(("log_ratio", "advantage"), [(-90.0, 1.0), (-math.inf, 1.0), (90.0, -1.0), (math.inf, -1.0)])
def test_the_mean_of_a_response_is_held_at_20_nats_without_a_gradient(
    name: str, log_ratio: float, advantage: float
) -> None:
    inputs = one_row([log_ratio, 0.0], [advantage, advantage])
    if log_ratio == -math.inf:
        inputs = replace(inputs, log_probs=torch.tensor([[log_ratio, -3.0]]), old_log_probs=torch.full((1, 2), -3.0))
    output, gradient = run(name, inputs, replace(TOKEN_SUM, clip_ratio_dual=0.0))
    assert float(output.loss) == pytest.approx(-2 * advantage * math.exp(math.copysign(20.0, log_ratio)), rel=1e-5)
    assert gradient[0].tolist() == [0.0, 0.0]


def test_dro_by_hand_and_its_minimum_is_advantage_over_beta_away() -> None:
    output, gradient = run(
        "dro", one_row([0.5, 4.0], [2.0, 2.0]), PolicyLossConfig(dro_beta=0.5, loss_aggregation="token-sum")
    )
    assert float(output.loss) == pytest.approx(2 * 2 * 3 + 0.25 * (0.25 + 16.0))
    assert gradient[0].tolist() == pytest.approx([-2 + 0.5 * 0.5, 0.0])


def test_dppo_tv_bounds_the_probability_and_not_the_ratio() -> None:
    # A rare token may grow fivefold (0.004 to 0.02); a likely one is held at half its ratio (0.8 to 0.4) where its
    # advantage pushes there.
    rare, likely = math.log(0.02), math.log(0.4)
    five, half = math.log(5.0), math.log(0.5)
    config = PolicyLossConfig(clip_ratio_low=0.2, clip_ratio_high=0.2, dppo_max_ratio=3.0, loss_aggregation="token-sum")
    assert gradient_row("dppo_tv", one_row([five], [1.0], log_prob=rare), config) == pytest.approx([-3.0])
    assert gradient_row("dppo_tv", one_row([half], [-1.0], log_prob=likely), config) == [0.0]
    assert gradient_row("dppo_tv", one_row([half], [1.0], log_prob=likely), config) == pytest.approx([-0.5])


def test_dppo_kl_holds_where_the_kl_of_taken_against_not_passes_its_bound() -> None:
    divergence = 0.8 * math.log(0.8 / 0.4) + 0.2 * math.log(0.2 / 0.6)
    inputs = one_row([math.log(0.5)], [-1.0], log_prob=math.log(0.4))
    for bound, expected in ((divergence + 1e-4, 0.5), (divergence - 1e-4, 0.0)):
        config = PolicyLossConfig(clip_ratio_low=bound, loss_aggregation="token-sum")
        assert gradient_row("dppo_kl", inputs, config) == pytest.approx([expected])


def test_dppo_kl_is_finite_where_a_token_is_certain() -> None:
    inputs = one_row([0.0, 0.0, 0.7], [1.0, -1.0, 1.0])
    inputs.log_probs = torch.tensor([[0.0, 0.0, 0.0]])
    inputs.old_log_probs = torch.tensor([[0.0, -0.7, 1e-7]])
    output, gradient = run("dppo_kl", inputs, PolicyLossConfig(loss_aggregation="token-sum"))
    assert output.loss.isfinite()
    # The certain token is on-policy; the second has risen against its advantage; the last has not moved.
    assert gradient[0].tolist() == pytest.approx([-1.0, math.exp(0.7), -1.0])


def test_kl_cov_penalises_the_top_tokens_only() -> None:
    config = PolicyLossConfig(kl_cov_ratio=0.25, ppo_kl_coef=0.5, loss_aggregation="token-sum")
    output, gradient = run("kl_cov", one_row([UP, UP, DOWN, DOWN], [1.0] * 4, ranks=[0.0, 0.25, 0.2, 0.75]), config)
    assert float(output.loss) == pytest.approx(-4.0 + 0.5 * (math.log(1.5) + math.log(2.0)))
    assert gradient[0].tolist() == pytest.approx([-1.5 + 0.5, -1.5, -0.5 - 0.5, -0.5])
    assert float(output.metrics["cov_frac"]) == pytest.approx(0.5)


def test_clip_cov_is_ppo_less_an_even_share_of_the_band() -> None:
    # 20 tokens in order of rank; the band holds places 4 to 15, a quarter of which is cut.
    inputs = one_row([0.0] * 20, [1.0] * 20, ranks=[place / 20 for place in range(20)])
    config = PolicyLossConfig(
        clip_cov_ratio=0.15, clip_cov_rank_low=0.2, clip_cov_rank_high=0.8, loss_aggregation="token-sum"
    )
    output, gradient = run("clip_cov", inputs, config)
    assert (gradient[0] == 0).nonzero().flatten().tolist() == [4, 8, 12]
    assert float(output.loss) == pytest.approx(-17.0) and float(output.metrics["cov_frac"]) == pytest.approx(0.15)


@pytest.mark.parametrize("num_tokens", [1, 40, 999, 5000, 100_000])
def test_clip_cov_cuts_its_share_of_the_tokens_inside_the_band(num_tokens: int) -> None:
    config = PolicyLossConfig(
        clip_cov_ratio=0.003, clip_cov_rank_low=0.001, clip_cov_rank_high=0.03, loss_aggregation="token-sum"
    )
    places = torch.arange(num_tokens)
    inputs = one_row([0.0] * num_tokens, [1.0] * num_tokens, ranks=(places / num_tokens).tolist())
    is_cut = run("clip_cov", inputs, config)[1][0] == 0
    in_band = int(((places >= 0.001 * num_tokens) & (places < 0.03 * num_tokens)).sum())
    assert int(is_cut.sum()) == math.ceil(in_band * 0.003 / 0.029 - 1e-9)
    assert all(0.001 * num_tokens <= place < 0.03 * num_tokens for place in is_cut.nonzero().flatten().tolist())


@pytest.mark.parametrize(("low", "high", "share"), [(0.02, 0.02, 0.0), (0.3, 0.1, 0.01), (0.0, 0.01, 0.02)])
def test_clip_cov_refuses_a_share_that_its_band_does_not_hold(low: float, high: float, share: float) -> None:
    config = PolicyLossConfig(clip_cov_ratio=share, clip_cov_rank_low=low, clip_cov_rank_high=high)
    with pytest.raises(
        ValueError, match=r"clip_cov_ratio is .* but the band .* Lower clip_cov_ratio, or widen the band"
    ):
        run("clip_cov", batch(), config)


# ---- gradients in closed form


def _ratio(i: LossInputs) -> Tensor:
    return (i.log_probs - i.old_log_probs).exp()


def _ppo_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    r, a = _ratio(i), i.advantages
    is_free = torch.where(a > 0, r < 1 + c.clip_ratio_high, r > 1 - c.clip_ratio_low)
    return torch.where(is_free, -a * r, 0.0)


def _ppo_dual_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    return torch.where((i.advantages < 0) & (_ratio(i) > c.clip_ratio_dual), 0.0, _ppo_gradient(i, c))


def _row_ratio(i: LossInputs, log_ratio: Tensor) -> Tensor:
    lengths = i.response_mask.sum(-1, keepdim=True).clamp(min=1)
    return (torch.where(i.response_mask, log_ratio, 0.0).sum(-1, keepdim=True) / lengths).exp()


def _gspo_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    s, a = _row_ratio(i, i.log_probs - i.old_log_probs), i.advantages
    is_free = torch.where(a > 0, s < 1 + c.clip_ratio_high, s > 1 - c.clip_ratio_low)
    return torch.where(is_free, -a * s, 0.0)


def _gmpo_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    d, a = i.log_probs - i.old_log_probs, i.advantages
    is_free = torch.where(a > 0, d < c.clip_ratio_high, d > -c.clip_ratio_low)
    held = torch.where(is_free, d, torch.where(a > 0, c.clip_ratio_high, -c.clip_ratio_low))
    mean_advantage = torch.where(i.response_mask, a, 0.0).sum(-1, keepdim=True) / i.response_mask.sum(
        -1, keepdim=True
    ).clamp(min=1)
    return torch.where(is_free, -mean_advantage * _row_ratio(i, held), 0.0)


def _sapo_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    r = _ratio(i)
    tau = torch.where(i.advantages > 0, c.tau_pos, c.tau_neg)
    return -i.advantages * r / torch.cosh(tau * (r - 1) / 2) ** 2


def _dppo_gradient(i: LossInputs, c: PolicyLossConfig, divergence: Tensor) -> Tensor:
    r, a = _ratio(i), i.advantages
    is_held = torch.where(a > 0, (r > 1) & (divergence > c.clip_ratio_high), (r < 1) & (divergence > c.clip_ratio_low))
    return torch.where(is_held, 0.0, -a * r.clamp(max=c.dppo_max_ratio))


def _dppo_tv_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    return _dppo_gradient(i, c, (i.log_probs.exp() - i.old_log_probs.exp()).abs())


def _dppo_kl_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    p, q = i.old_log_probs.exp(), i.log_probs.exp()
    return _dppo_gradient(i, c, p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log())


def _clip_cov_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    # 18 tokens; the band holds places 2 to 12 and 0.2 / 0.6 of them are cut: every third.
    assert i.covariance_rank is not None
    place = (i.covariance_rank * 18).round()
    return torch.where((place >= 2) & (place < 12.6) & ((place - 2) % 3 == 0), 0.0, _ppo_gradient(i, c))


def _kl_cov_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    assert i.covariance_rank is not None
    pull = c.ppo_kl_coef * (i.log_probs - i.old_log_probs).sign()
    return -i.advantages * _ratio(i) + torch.where((i.covariance_rank * 18).round() < 5.4, pull, 0.0)


def _vespo_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    w = torch.where(i.response_mask, _ratio(i), 1.0).prod(-1, keepdim=True)
    is_positive = i.advantages >= 0
    k = torch.where(is_positive, c.vespo_k_pos, c.vespo_k_neg)
    decay = torch.where(is_positive, c.vespo_lambda_pos, c.vespo_lambda_neg)
    return -i.advantages * decay.exp() * w**k * (-decay * w).exp()


def _a_star_gradient(i: LossInputs, c: PolicyLossConfig) -> Tensor:
    assert i.ref_log_probs is not None
    total = torch.where(i.response_mask, i.log_probs - i.ref_log_probs, 0.0).sum(-1, keepdim=True)
    errors = torch.where(i.response_mask, c.a_star_beta * total - i.advantages, 0.0)
    return (2 * c.a_star_beta * errors.sum(-1, keepdim=True)).expand_as(errors)


GRADIENTS: dict[str, Callable[[LossInputs, PolicyLossConfig], Tensor]] = {
    "ppo": _ppo_dual_gradient,
    "gspo": _gspo_gradient,
    "cispo": lambda i, c: -i.advantages * _ratio(i).clamp(1 - c.clip_ratio_low, 1 + c.clip_ratio_high),
    "sapo": _sapo_gradient,
    "gpg": lambda i, c: -i.advantages,
    "clip_cov": _clip_cov_gradient,
    "kl_cov": _kl_cov_gradient,
    "gmpo": _gmpo_gradient,
    "vespo": _vespo_gradient,
    "a_star_po": _a_star_gradient,
    "dro": lambda i, c: -i.advantages + c.dro_beta * (i.log_probs - i.old_log_probs),
    "dppo_tv": _dppo_tv_gradient,
    "dppo_kl": _dppo_kl_gradient,
    "reinforce": lambda i, c: -i.advantages,
}


def test_each_loss_has_its_gradient_in_closed_form() -> None:
    assert sorted(GRADIENTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_the_closed_form(name: str) -> None:
    inputs = replace(batch(), weights=None)
    config = replace(TOKEN_SUM, clip_ratio_low=0.02, clip_ratio_high=0.03) if name.startswith("dppo") else TOKEN_SUM
    expected = torch.where(inputs.response_mask, GRADIENTS[name](inputs, config), 0.0)
    _, gradient = run(name, inputs, config)
    assert torch.allclose(gradient, expected, rtol=1e-6, atol=1e-12)
    if name not in ("gpg", "reinforce", "cispo", "sapo", "vespo", "a_star_po", "dro", "kl_cov"):
        assert (gradient[inputs.response_mask] == 0).any() and gradient.any(), (
            "the batch should hold some tokens and leave some"
        )


@pytest.mark.parametrize("name", sorted({*NAMES} - REGRESSIONS))
@pytest.mark.parametrize("mode", MODES)
def test_at_ratio_one_the_gradient_is_the_policy_gradient(name: str, mode: str) -> None:
    inputs = batch(equal_in_row=True)
    inputs = replace(
        inputs, old_log_probs=inputs.log_probs, weights=None, covariance_rank=torch.full_like(inputs.log_probs, 0.9)
    )
    config = replace(CONFIG, loss_aggregation=mode)
    assert torch.allclose(run(name, inputs, config)[1], run("reinforce", inputs, config)[1], rtol=1e-6, atol=1e-12)


# ---- what must hold for each loss


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [[1] * 6, [2, 4], [5, 0, 1]])
def test_micro_batch_shares_add_up_to_the_whole(name: str, mode: str, sizes: list[int]) -> None:
    config = replace(CONFIG, loss_aggregation=mode)
    inputs = batch(dtype=torch.float32)
    whole, whole_gradient = run(name, inputs, config)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    parts = [
        run(name, cut(inputs, lambda c, start=start, size=size: c[start : start + size]), config)
        for start, size in zip(starts, sizes, strict=True)
    ]
    assert float(sum(output.loss for output, _ in parts)) == pytest.approx(float(whole.loss), rel=1e-6, abs=1e-6)
    assert torch.allclose(torch.cat([gradient for _, gradient in parts]), whole_gradient, atol=1e-6)
    for metric, value in whole.metrics.items():
        assert float(sum(output.metrics[metric] for output, _ in parts)) == pytest.approx(
            float(value), rel=1e-6, abs=1e-6
        ), metric


@pytest.mark.parametrize("name", NAMES)
def test_row_order_does_not_matter(name: str) -> None:
    inputs, order = batch(), torch.tensor([3, 0, 5, 2, 1, 4])
    output, gradient = run(name, inputs, CONFIG)
    shuffled_output, shuffled_gradient = run(name, cut(inputs, lambda c: c[order]), CONFIG)
    assert float(shuffled_output.loss) == pytest.approx(float(output.loss), rel=1e-12)
    assert torch.allclose(shuffled_gradient, gradient[order], rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_padding_width_does_not_matter(name: str) -> None:
    inputs = batch()
    output, gradient = run(name, inputs, CONFIG)
    wide_output, wide_gradient = run(name, cut(inputs, lambda c: torch.nn.functional.pad(c, (0, 3))), CONFIG)
    assert float(wide_output.loss) == pytest.approx(float(output.loss), rel=1e-12)
    assert torch.allclose(wide_gradient[:, :5], gradient, rtol=1e-12) and not wide_gradient[:, 5:].any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1e30])
def test_what_the_padding_holds_does_not_matter(name: str, garbage: float) -> None:
    inputs = batch()
    clean_output, clean_gradient = run(name, inputs, CONFIG)
    assert not clean_gradient[~inputs.response_mask].any()

    def soil(column: Tensor | None) -> Tensor:
        assert column is not None
        return torch.where(inputs.response_mask, column, garbage)

    alone = [
        {"log_probs": soil(inputs.log_probs)},
        {"old_log_probs": soil(inputs.old_log_probs)},
        {"advantages": soil(inputs.advantages)},
        {"weights": soil(inputs.weights)},
        {"covariance_rank": soil(inputs.covariance_rank)},
        {"ref_log_probs": soil(inputs.ref_log_probs)},
    ]
    # Each alone and all at once: garbage less garbage may be zero.
    for replaced in (*alone, {key: column for one in alone for key, column in one.items()}):
        output, gradient = run(name, replace(inputs, **replaced), CONFIG)
        assert float(output.loss) == float(clean_output.loss)
        assert torch.equal(gradient, clean_gradient)
        assert {m: float(v) for m, v in output.metrics.items()} == {
            m: float(v) for m, v in clean_output.metrics.items()
        }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
def test_weights_of_one_are_no_weights_and_weights_scale(name: str, mode: str) -> None:
    config, inputs = replace(CONFIG, loss_aggregation=mode), batch()
    plain_output, plain_gradient = run(name, replace(inputs, weights=None), config)
    for weight in (1.0, 2.5, 0.0):
        output, gradient = run(name, replace(inputs, weights=torch.full_like(inputs.log_probs, weight)), config)
        assert float(output.loss) == pytest.approx(weight * float(plain_output.loss), rel=1e-12)
        assert torch.allclose(gradient, weight * plain_gradient, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_no_gradient(name: str) -> None:
    inputs = batch()
    assert inputs.weights is not None
    weights = inputs.weights.requires_grad_()
    output = loss_of(POLICY_LOSSES[name], replace(inputs, log_probs=inputs.log_probs.requires_grad_()), CONFIG)
    torch.autograd.backward(output.loss)
    assert inputs.log_probs.grad is not None and weights.grad is None


@pytest.mark.parametrize("name", sorted({*NAMES} - COUPLED))
def test_each_token_has_its_own_weight(name: str) -> None:
    inputs = batch()
    assert inputs.weights is not None
    _, plain = run(name, replace(inputs, weights=None), CONFIG)
    assert torch.allclose(run(name, inputs, CONFIG)[1], inputs.weights * plain, rtol=1e-12)


def test_gmpo_weighs_a_response_by_the_mean_weight_of_its_tokens() -> None:
    inputs = one_row([0.1, 0.2], [1.0, 1.0], weights=[0.0, 3.0])
    config = PolicyLossConfig(loss_aggregation="seq-mean-token-mean")
    _, plain = run("gmpo", replace(inputs, weights=None), config)
    assert torch.allclose(run("gmpo", inputs, config)[1], 1.5 * plain)


@pytest.mark.parametrize("name", NAMES)
def test_loss_is_over_the_totals_given(name: str) -> None:
    inputs = batch()
    assert inputs.totals == BatchTotals(num_tokens=18, num_sequences=5, max_response_tokens=10)
    output, gradient = run(name, inputs, replace(CONFIG, loss_aggregation="seq-mean-token-mean"))
    inputs.totals = replace(inputs.totals, num_sequences=10)
    halved_output, halved_gradient = run(name, inputs, replace(CONFIG, loss_aggregation="seq-mean-token-mean"))
    assert float(halved_output.loss) == pytest.approx(float(output.loss) / 2) and torch.allclose(
        halved_gradient, gradient / 2
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("log_ratio", [-1e4, -80.0, 80.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_extreme_log_ratios_stay_finite(name: str, log_ratio: float, advantage: float) -> None:
    inputs = one_row([log_ratio, 0.0], [advantage, 1.0], ranks=[0.0, 0.2])
    output, gradient = run(name, inputs, CONFIG)
    assert output.loss.isfinite() and all(value.isfinite() for value in output.metrics.values())
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("name", "pull"), [("kl_cov", lambda d: 0.7 * math.copysign(1, d)), ("dro", lambda d: 0.5 * d)]
)
@pytest.mark.parametrize("log_ratio", [-80.0, 80.0])
def test_a_penalty_still_pulls_back_where_the_ratio_is_held(
    name: str, pull: Callable[[float], float], log_ratio: float
) -> None:
    inputs = one_row([log_ratio], [0.0], ranks=[0.0])
    assert gradient_row(name, inputs, TOKEN_SUM) == pytest.approx([pull(log_ratio)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0), (3, 4)])
def test_nothing_valid_gives_a_zero_loss_that_can_run_backward(name: str, shape: tuple[int, int]) -> None:
    mask = torch.zeros(shape, dtype=torch.bool)
    nothing = torch.full(shape, math.nan)
    inputs = WeighedInputs(
        log_probs=nothing,
        old_log_probs=nothing,
        advantages=nothing,
        response_mask=mask,
        totals=totals_of(mask),
        weights=nothing,
        covariance_rank=nothing,
        ref_log_probs=nothing,
    )
    for mode in MODES:
        output, gradient = run(name, inputs, replace(CONFIG, loss_aggregation=mode))
        assert float(output.loss) == 0.0 and not gradient.any()
        assert all(float(value) == 0.0 and not value.requires_grad for value in output.metrics.values())


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_advantage_have_a_gradient_only_where_the_loss_says_so(name: str) -> None:
    inputs = batch()
    _, gradient = run(name, replace(inputs, advantages=torch.zeros_like(inputs.advantages)), CONFIG)
    assert bool(gradient.any()) == POLICY_LOSSES[name].acts_without_advantage


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_reads_only_the_columns_it_needs(name: str) -> None:
    run(name, replace(batch(), **dict.fromkeys(OPTIONAL_COLUMNS - POLICY_LOSSES[name].needs)), CONFIG)
    for column in POLICY_LOSSES[name].needs:
        with pytest.raises(AssertionError, match=f"{name} needs {column}, but the batch has none"):
            run(name, replace(batch(), **{column: None}), CONFIG)


# ---- the table and a user's own


def test_gpg_is_the_plain_policy_gradient() -> None:
    assert POLICY_LOSSES["gpg"].fn == POLICY_LOSSES["reinforce"].fn


def test_unknown_policy_loss_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"actor\.policy_loss=pppo is unknown.*did you mean ppo"):
        policy_loss("pppo")


def test_a_loss_cannot_need_a_column_that_no_stage_makes() -> None:
    with pytest.raises(
        ValueError, match=r"needs \['logits'\], which no stage produces; expected some of \['covariance_rank'"
    ):
        PolicyLoss(fn=POLICY_LOSSES["ppo"].fn, needs=frozenset({"logits"}))


def half_a_loss(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    return TokenLosses(losses=0.5 * inputs.log_probs, metrics={"ratio_mean": inputs.response_mask})


own_loss = PolicyLoss(fn=half_a_loss, needs=frozenset({"entropy"}))


def test_a_users_own_is_a_policy_loss_or_a_plain_function(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("plain", half_a_loss), ("full", own_loss), ("number", 3)):
        monkeypatch.setattr(policy_losses, name, value, raising=False)
    prefix = policy_losses.__name__
    assert policy_loss(f"{prefix}:full") is own_loss
    plain = policy_loss(f"{prefix}:plain")
    assert plain.fn is half_a_loss and plain.acts_without_advantage and not plain.needs
    inputs = replace(batch(), weights=None)
    output = loss_of(plain, inputs, TOKEN_SUM)
    assert float(output.loss) == pytest.approx(0.5 * float(inputs.log_probs.sum()))
    assert float(output.metrics["ratio_mean"]) == 1.0, "a metric is the mean over the tokens"
    with pytest.raises(ValueError, match="names a int; expected a PolicyLoss, or a function"):
        policy_loss(f"{prefix}:number")


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_gives_one_number_per_token_and_neither_weighs_nor_aggregates(name: str) -> None:
    inputs = batch()
    found = POLICY_LOSSES[name].function(inputs, CONFIG)
    assert {column.shape for column in (found.losses, *found.metrics.values())} == {inputs.log_probs.shape}
    for mode in MODES:
        other = POLICY_LOSSES[name].function(replace(inputs, weights=None), replace(CONFIG, loss_aggregation=mode))
        assert torch.equal(other.losses, found.losses)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            lambda lp: LossOutput(loss=lp.sum()),
            r"^actor\.policy_loss=mine\.py:loss returned a LossOutput; expected TokenLosses\. Return TokenLosses",
        ),
        (lambda lp: lp.sum(), r"returned a Tensor; expected TokenLosses"),
        (lambda lp: None, r"returned a NoneType; expected TokenLosses"),
        (
            lambda lp: TokenLosses(losses=lp.sum()),
            r"returned a tensor of shape \[\] for 'losses'; expected a tensor \[B, T\] = \[6, 5\] like inputs",
        ),
        (
            lambda lp: TokenLosses(losses=lp, metrics={"ratio_mean": lp.mean(-1)}),
            r"returned a tensor of shape \[6\] for 'ratio_mean'; expected a tensor \[B, T\]",
        ),
        (
            lambda lp: TokenLosses(losses=lp, metrics={"ratio_mean": "7.0"}),
            r"returned a str for 'ratio_mean'; expected a tensor \[B, T\] = \[6, 5\] like inputs.log_probs, or one",
        ),
        (
            lambda lp: TokenLosses(losses=lp, metrics={"grad_norm": lp}),
            r"returned a metric 'grad_norm', but every update reports actor/grad_norm itself",
        ),
    ],
)
def test_what_is_no_token_loss_is_refused_with_the_name_and_the_form(
    returned: Callable[[Tensor], TokenLosses], message: str
) -> None:
    loss = PolicyLoss(fn=lambda inputs, config: returned(inputs.log_probs))
    with pytest.raises(ValueError, match=message):
        loss_of(loss, batch(), replace(CONFIG, policy_loss="mine.py:loss"))


def test_a_metric_of_one_number_is_reported_as_it_is_whatever_the_micro_batches() -> None:
    inputs = batch()
    loss = PolicyLoss(
        fn=lambda inputs, config: TokenLosses(
            losses=inputs.log_probs, metrics={"beta": 0.25, "scale": torch.tensor(3.0)}
        )
    )
    found = loss_of(loss, inputs, CONFIG).metrics
    share = float(inputs.response_mask.sum()) / inputs.totals.num_tokens
    assert found["beta"].item() == pytest.approx(0.25 * share) and found["scale"].item() == pytest.approx(3.0 * share)
