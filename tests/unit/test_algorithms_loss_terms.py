"""Terms of the actor's loss that are not the policy loss, against exact sums over a small vocabulary in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.config.schema import ActorConfig

NEW = torch.tensor([0.4, -0.8, 1.1], dtype=torch.float64)  # logits
OLD = torch.tensor([1.0, 0.2, -0.5], dtype=torch.float64).log_softmax(-1)
REF = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log()


def over_old_samples(config: ActorConfig, **columns: Tensor) -> tuple[float, Tensor]:
    """Return the mean of the actor's loss over tokens of the old policy, and its gradient with respect to the logits.

    Each token of the vocabulary is a response, whose advantage is 0. The gradients of the log-probs are weighted by the
    token's probability, so that a share of the loss is a share of the mean.
    """
    logits = NEW.clone().requires_grad_()
    value = torch.zeros((), dtype=torch.float64)
    for token, probability in enumerate(OLD.exp().tolist()):
        given = {"response_mask": torch.ones(1, 1, dtype=torch.bool), "advantages": torch.zeros(1, 1).double()}
        given |= {name: column[token].reshape(1, 1) for name, column in {"old_log_probs": OLD, **columns}.items()}
        log_probs = {"log_probs": logits.log_softmax(-1)[token].reshape(1, 1)}
        totals = BatchTotals(num_tokens=1, num_sequences=1, max_response_tokens=1)
        value = value + probability * ActorLoss(config)(log_probs, given, totals).loss
    torch.autograd.backward(value)
    assert logits.grad is not None
    return float(value.detach()), logits.grad


def exact_kl() -> tuple[float, Tensor]:
    logits = NEW.clone().requires_grad_()
    value = (logits.softmax(-1) * (logits.log_softmax(-1) - REF)).sum()
    torch.autograd.backward(value)
    assert logits.grad is not None
    return float(value.detach()), logits.grad


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_a_kl_weighed_by_the_ratio_has_the_mean_and_gradient_of_the_kl_on_samples_of_the_old_policy(kind: str) -> None:
    value, gradient = exact_kl()
    config = ActorConfig(kl_loss_coef=1.0, kl_loss_type=kind, weigh_kl_by_ratio=True)
    found, found_gradient = over_old_samples(config, ref_log_probs=REF)
    assert found == pytest.approx(value, rel=1e-12)
    assert torch.allclose(found_gradient, gradient, rtol=1e-9, atol=1e-12)


def test_without_the_ratio_neither_is_that_of_the_kl() -> None:
    value, gradient = exact_kl()
    for kind in ("k1", "k2", "k3"):
        found, found_gradient = over_old_samples(ActorConfig(kl_loss_coef=1.0, kl_loss_type=kind), ref_log_probs=REF)
        assert found != pytest.approx(value, rel=1e-2) and not torch.allclose(found_gradient, gradient, atol=1e-2)


def row(log_probs: list[float], **columns: list[float]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return outputs and columns of one response of advantage 0."""
    values = torch.tensor([log_probs], dtype=torch.float64, requires_grad=True)
    given = {name: torch.tensor([column], dtype=torch.float64) for name, column in columns.items()}
    given |= {"advantages": torch.zeros_like(values), "response_mask": torch.ones_like(values, dtype=torch.bool)}
    return {"log_probs": values}, given


def run(config: ActorConfig, outputs: dict[str, Tensor], columns: dict[str, Tensor]) -> tuple[LossOutput, list[float]]:
    totals = BatchTotals(num_tokens=2, num_sequences=1, max_response_tokens=2)
    output = ActorLoss(config)(outputs, columns, totals)
    torch.autograd.backward(output.loss)
    assert outputs["log_probs"].grad is not None
    return output, outputs["log_probs"].grad[0].tolist()


def test_a_kl_weighed_by_an_extreme_ratio_is_finite() -> None:
    config = ActorConfig(kl_loss_coef=1.0, weigh_kl_by_ratio=True)
    outputs, columns = row([-1.0, -90.0], old_log_probs=[-200.0, -1.0], ref_log_probs=[-90.0, -1.0])
    output, gradient = run(config, outputs, columns)
    assert output.loss.isfinite() and torch.tensor(gradient).isfinite().all()


def test_the_square_to_the_engines_log_probs_by_hand() -> None:
    outputs, columns = row([-1.0, -2.0], old_log_probs=[-1.0, -2.0], rollout_log_probs=[-1.5, -1.9])
    output, gradient = run(ActorConfig(rollout_kl_coef=0.4), outputs, columns)
    assert float(output.metrics["actor/rollout_kl_loss"]) == pytest.approx((0.5**2 + 0.1**2) / 2)
    assert float(output.loss.detach()) == pytest.approx(0.4 * (0.5**2 + 0.1**2) / 2)
    assert gradient == pytest.approx([0.4 * 2 * 0.5 / 2, 0.4 * 2 * -0.1 / 2])


def test_the_square_acts_on_tokens_that_the_clip_and_the_off_policy_mask_drop() -> None:
    outputs, columns = row([-1.0, -2.0], old_log_probs=[-3.0, -2.0], rollout_log_probs=[-0.5, -1.0])
    columns["advantages"] = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    config = ActorConfig(rollout_kl_coef=0.4, off_policy_mask_threshold=0.1, loss_aggregation="token-sum")
    _, gradient = run(config, outputs, columns)
    assert gradient == pytest.approx([0.4 * 2 * -0.5, 0.4 * 2 * -1.0]), "the first is clipped, the second masked"


def test_dppo_with_the_square_is_the_loss_of_prime_rl() -> None:
    """Its default: -A r for kept tokens, + tau (log r)^2 for all, r to the engine; the token's own advantage."""
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(3, 40, generator=generator, dtype=torch.float64)
    log_probs, advantages = -0.3 - noise[0].abs(), noise[2]
    engine = (log_probs + 0.7 * noise[1]).clamp(max=-1e-3)
    ratio, moved = (log_probs - engine).exp(), log_probs.exp() - engine.exp()
    is_held = torch.where(advantages > 0, moved > 0.2, moved < -0.2)
    expected = torch.where(is_held, 0.0, -advantages * ratio) + 0.05 * 2 * (log_probs - engine)
    assert is_held.any() and not is_held.all()
    config = ActorConfig(policy_loss="dppo_tv", rollout_kl_coef=0.05, loss_aggregation="token-sum")
    outputs, columns = row(log_probs.tolist(), old_log_probs=engine.tolist(), rollout_log_probs=engine.tolist())
    columns["advantages"] = advantages[None]
    _, gradient = run(config, outputs, columns)
    assert gradient == pytest.approx(expected.tolist(), rel=1e-9)


def test_the_square_without_the_engines_log_probs_is_named() -> None:
    outputs, columns = row([-1.0, -2.0], old_log_probs=[-1.0, -2.0])
    with pytest.raises(AssertionError, match=r"rollout_kl_coef > 0, but the batch has no rollout_log_probs"):
        run(ActorConfig(rollout_kl_coef=0.1), outputs, columns)
