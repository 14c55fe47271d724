"""Compare losses of pairs with TRL 1.16: equal to 1e-5 in value and gradient. ``make peers`` installs it."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.pair_losses import PAIR_LOSSES, bradley_terry
from verl_like.algorithms.preference_loss import DpoLoss
from verl_like.algorithms.types import BatchTotals
from verl_like.config.schema import DpoConfig
from verl_like.config.schema.preference import READ_DIVERGENCE

PAIRS, WIDTH, BETA, SHARE = 5, 7, 0.2, 0.15


@pytest.fixture(scope="module")
def trl() -> Any:
    return pytest.importorskip("trl.trainer.dpo_trainer", reason="trl is not installed: make peers")


@pytest.fixture(scope="module")
def reward_trainer() -> Any:
    return pytest.importorskip("trl.trainer.reward_trainer", reason="trl is not installed: make peers")


def batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs and a mask [2 P, T], chosen rows first, and the reference's sums [2 P]."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, WIDTH + 1, (2 * PAIRS,), generator=generator)
    log_probs = -2 * torch.rand(2 * PAIRS, WIDTH, generator=generator)
    mask = torch.arange(WIDTH) < lengths[:, None]
    log_probs = torch.where(mask, log_probs, 0.0)
    reference = log_probs.sum(1) + torch.randn(2 * PAIRS, generator=generator)
    return log_probs, mask, reference


def ours(
    log_probs: Tensor, mask: Tensor, reference: Tensor, losses: dict[str, float], **divergence: Any
) -> tuple[float, Tensor]:
    leaf = log_probs.clone().requires_grad_()
    columns = {
        "response_mask": mask,
        "pair": torch.arange(PAIRS).repeat(2),
        "is_chosen": torch.arange(2 * PAIRS) < PAIRS,
        "ref_log_prob": reference,
    }
    totals = BatchTotals(num_tokens=float(mask.sum()), num_sequences=2.0 * PAIRS, max_response_tokens=WIDTH)
    config = DpoConfig(losses=losses, beta=BETA, label_smoothing=SHARE, **divergence)
    found = DpoLoss(config, chosen_tokens=float(mask[:PAIRS].sum()))({"log_probs": leaf}, columns, totals)
    found.loss.backward()
    assert leaf.grad is not None
    return float(found.loss.detach()), leaf.grad


def trls(
    trl: Any,
    log_probs: Tensor,
    mask: Tensor,
    reference: Tensor,
    losses: dict[str, float],
    *,
    f_divergence: str = "reverse_kl",
    f_alpha: float = 0.5,
) -> tuple[float, Tensor]:
    """DPOTrainer's loss; its columns begin with a prompt of one token."""
    leaf = log_probs.clone().requires_grad_()
    chosen, rejected = reference.chunk(2)
    inputs = {
        "input_ids": torch.zeros(2 * PAIRS, WIDTH + 1, dtype=torch.long),
        "attention_mask": torch.ones(2 * PAIRS, WIDTH + 1, dtype=torch.long),
        "completion_mask": torch.cat([torch.zeros(2 * PAIRS, 1), mask], dim=1).long(),
        "ref_chosen_logps": chosen,
        "ref_rejected_logps": rejected,
    }
    trainer = MagicMock(
        loss_types=list(losses),
        loss_weights=list(losses.values()),
        beta=BETA,
        label_smoothing=SHARE,
        f_divergence_type=f_divergence,
        f_alpha_divergence_coef=f_alpha,
        ld_alpha=None,
        precompute_ref_logps=True,
        aux_loss_enabled=False,
        use_weighting=False,
        _tp_size=1,
        _total_train_tokens=0,
    )
    trainer.accelerator.gather = trainer.accelerator.gather_for_metrics = lambda x: x
    trainer.accelerator.device = torch.device("cpu")
    like = torch.zeros_like(log_probs)
    outputs = MagicMock(log_probs=leaf, entropy=like, mean_logits=like, is_top1=like.bool())
    value = trl.DPOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, return_outputs=False)
    value.backward()
    assert leaf.grad is not None
    return float(value.detach()), torch.where(mask, leaf.grad, 0.0)  # elsewhere a model's log-probs are constants


# cDPO is not in TRL 1.16.
OF_BOTH = [{name: 1.0} for name in sorted(set(PAIR_LOSSES) - {"cdpo"})]


@pytest.mark.parametrize("losses", [*OF_BOTH, {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}], ids=str)
def test_losses_of_pairs_equal_trl(trl: Any, losses: dict[str, float]) -> None:
    for seed in range(5):
        given = batch(seed)
        value, gradient = ours(*given, losses)
        expected, of_trl = trls(trl, *given, losses)
        assert value == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(gradient, of_trl, rtol=1e-5, atol=1e-6)


DIVERGENCES: list[dict[str, Any]] = [
    {"f_divergence": "forward_kl"},
    {"f_divergence": "js_divergence"},
    *({"f_divergence": "alpha_divergence", "f_alpha": alpha} for alpha in (0.5, 1.0, 2.0, -1.0, 60.0)),
]


@pytest.mark.parametrize("name", sorted(set(READ_DIVERGENCE) - {"cdpo"}))
@pytest.mark.parametrize("divergence", DIVERGENCES, ids=str)
def test_divergences_equal_trl(trl: Any, name: str, divergence: dict[str, Any]) -> None:
    for seed in range(3):
        value, gradient = ours(*batch(seed), {name: 1.0}, **divergence)
        expected, of_trl = trls(trl, *batch(seed), {name: 1.0}, **divergence)
        assert value == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(gradient, of_trl, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("center", [0.0, 0.01])
@pytest.mark.parametrize("has_margin", [False, True])
def test_the_loss_of_scores_equals_trl(reward_trainer: Any, center: float, has_margin: bool) -> None:
    scores = torch.randn(2 * PAIRS, 1, generator=torch.Generator().manual_seed(1))
    margin = torch.rand(PAIRS, generator=torch.Generator().manual_seed(2)) if has_margin else torch.zeros(PAIRS)
    leaf, of_trl = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    bradley_terry(leaf[:PAIRS, 0], leaf[PAIRS:, 0], margin, center=center).mean().backward()
    trainer = MagicMock(_tp_size=1, _total_train_tokens=0)
    trainer.args.center_rewards_coefficient = center or None
    trainer.accelerator.gather = trainer.accelerator.gather_for_metrics = lambda x: x
    inputs = {"attention_mask": torch.ones(2 * PAIRS, 3), **({"margin": margin} if has_margin else {})}
    reward_trainer.RewardTrainer.compute_loss(trainer, lambda **_: MagicMock(logits=of_trl), inputs).backward()
    torch.testing.assert_close(leaf.grad, of_trl.grad, rtol=1e-5, atol=1e-7)
