"""KL: hand-computed values, gradients in closed form, what the estimators average to, and the controller."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict

import pytest
import torch

from verl_like.algorithms.kl import kl, kl_penalties
from verl_like.algorithms.kl_controller import AdaptiveKl

KINDS = ("k1", "k2", "k3", "abs")


@pytest.mark.parametrize(
    ("kind", "value"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 1 + 0.5), ("abs", 0.5)]
)
def test_kl_by_hand(kind: str, value: float) -> None:
    assert float(kl(torch.tensor(-1.0), torch.tensor(-1.5), kind)) == pytest.approx(value)


GRADIENTS: dict[str, Callable[[float], float]] = {
    "k1": lambda d: 1.0,
    "k2": lambda d: d,
    "k3": lambda d: 1 - math.exp(-d),
    "abs": lambda d: math.copysign(1.0, d),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("difference", [-15.0, -1.5, -1.0, -0.3, 1e-4, 0.7, 1.0, 12.0, 80.0])
def test_kl_gradient_is_the_closed_form(kind: str, difference: float) -> None:
    log_probs = torch.tensor(difference, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(kl(log_probs, torch.tensor(0.0, dtype=torch.float64), kind))
    assert log_probs.grad is not None
    assert float(log_probs.grad) == pytest.approx(GRADIENTS[kind](difference), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("difference", [-80.0, -1000.0])
def test_k3_far_out_is_finite_and_still_pulls_back(difference: float) -> None:
    log_probs = torch.tensor(difference, requires_grad=True)
    value = kl(log_probs, torch.tensor(0.0), "k3")
    torch.autograd.backward(value)
    assert value.isfinite() and log_probs.grad is not None and log_probs.grad.isfinite()
    assert float(log_probs.grad) < -1e6


def test_k3_is_exact_for_small_differences_in_float32() -> None:
    # exp(-d) - 1 + d in float32 would be off by 6e-8, more than the value itself.
    assert float(kl(torch.tensor(1e-3), torch.tensor(0.0), "k3")) == pytest.approx(math.exp(-1e-3) - 1 + 1e-3, rel=0.2)
    assert float(kl(torch.tensor(1e-5), torch.tensor(0.0), "k3")) >= 0


def test_k1_and_k3_average_to_the_kl_of_two_distributions() -> None:
    policy, ref = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.5, 0.25, 0.25]).double()
    exact = float((policy * (policy / ref).log()).sum())
    for kind in ("k1", "k3"):
        assert float((policy * kl(policy.log(), ref.log(), kind)).sum()) == pytest.approx(exact)


def test_unknown_kl_says_what_exists() -> None:
    with pytest.raises(ValueError, match="'k9'; expected k1, k2, k3 or abs"):
        kl(torch.zeros(1), torch.zeros(1), "k9")


def test_each_valid_token_has_a_penalty() -> None:
    log_probs, ref = torch.tensor([-1.0, -2.0, float("nan")]), torch.tensor([-1.5, -1.0, 0.0])
    mask = torch.tensor([True, True, False])
    assert kl_penalties(log_probs, ref, mask, coef=0.1, kind="k1").tolist() == pytest.approx([0.05, -0.1, 0.0])


# ---- straight-through forms


def gradient_of(kind: str, difference: float) -> tuple[float, float]:
    """Value and derivative at log_probs - ref_log_probs = difference."""
    log_probs = torch.tensor(difference, dtype=torch.float64, requires_grad=True)
    value = kl(log_probs, torch.tensor(0.0, dtype=torch.float64), kind)
    torch.autograd.backward(value)
    assert log_probs.grad is not None
    return float(value.detach()), float(log_probs.grad)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("difference", [-80.0, -1.5, -1e-4, 0.0, 0.7, 80.0])
def test_a_plus_keeps_the_value_and_takes_the_gradient_of_k2(kind: str, difference: float) -> None:
    value, derivative = gradient_of(f"{kind}+", difference)
    assert value == gradient_of(kind, difference)[0]
    assert derivative == difference


def mean_gradient(kind: str, logits: torch.Tensor, ref: torch.Tensor) -> torch.Tensor:
    """Return the exact expected gradient with respect to the logits, over tokens drawn from the policy."""
    logits = logits.clone().requires_grad_()
    log_probs = logits.log_softmax(-1)
    torch.autograd.backward((log_probs.exp().detach() * kl(log_probs, ref, kind)).sum())
    assert logits.grad is not None
    return logits.grad


def test_only_the_gradient_of_k2_averages_to_that_of_the_kl() -> None:
    logits, ref = torch.tensor([1.0, -0.5, 0.3]).double(), torch.tensor([0.5, 0.25, 0.25]).double().log()
    exact = logits.clone().requires_grad_()
    torch.autograd.backward((exact.softmax(-1) * (exact.log_softmax(-1) - ref)).sum())
    assert exact.grad is not None
    for kind in ("k2", "k1+", "k2+", "k3+", "abs+"):
        assert torch.allclose(mean_gradient(kind, logits, ref), exact.grad, atol=1e-12), kind
    for kind in ("k1", "k3", "abs"):
        assert not torch.allclose(mean_gradient(kind, logits, ref), exact.grad, atol=1e-3), kind
    assert torch.allclose(mean_gradient("k1", logits, ref), torch.zeros(3).double(), atol=1e-12)


# ---- controller


def test_adaptive_kl_by_hand() -> None:
    # 1 + 0.1 * 256 / 1024, then the error held at -0.2 and at 0.2.
    start = AdaptiveKl(coef=0.2, target=6.0, horizon=1024)
    assert start.updated(6.6, num_responses=256).coef == pytest.approx(0.2 * 1.025)
    assert start.updated(-3.0, num_responses=256).coef == pytest.approx(0.2 * 0.95)
    assert start.updated(1e9, num_responses=256).coef == pytest.approx(0.2 * 1.05)
    assert start.updated(6.0, num_responses=256) == start
    assert start.coef == 0.2


def test_adaptive_kl_steers_a_kl_that_answers_to_its_coefficient() -> None:
    controller = AdaptiveKl(coef=0.01, target=5.0, horizon=100)
    for _ in range(400):
        controller = controller.updated(1.0 / controller.coef, num_responses=64)
    assert 1.0 / controller.coef == pytest.approx(5.0, rel=1e-3)


def test_adaptive_kl_is_restored_from_a_checkpoint() -> None:
    controller = AdaptiveKl(coef=0.1, target=5.0, horizon=1000).updated(7.0, num_responses=3)
    assert AdaptiveKl(**json.loads(json.dumps(asdict(controller)))) == controller


def test_adaptive_kl_refuses_a_horizon_that_could_turn_its_sign() -> None:
    controller = AdaptiveKl(coef=0.1, target=5.0, horizon=100)
    assert controller.updated(0.0, num_responses=499).coef > 0
    with pytest.raises(AssertionError, match="kl_horizon is 100, but a step has 500 responses"):
        controller.updated(0.0, num_responses=500)


def test_adaptive_kl_refuses_a_measurement_that_is_no_number() -> None:
    with pytest.raises(AssertionError, match="measured KL is nan"):
        AdaptiveKl(coef=0.1, target=5.0, horizon=100).updated(math.nan, num_responses=1)
