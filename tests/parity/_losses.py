"""Batches of the parity tests of losses, and TRL's loss of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from tests.unit._policy_losses import WeighedInputs
from verl_like.algorithms.covariance import covariance_ranks
from verl_like.algorithms.types import BatchTotals
from verl_like.config.schema import PolicyLossConfig

LOW, HIGH, DUAL = 0.2, 0.28, 3.0
WIDTH = 7

CONFIG = PolicyLossConfig(
    clip_ratio_low=LOW,
    clip_ratio_high=HIGH,
    clip_ratio_dual=DUAL,
    tau_pos=0.9,
    tau_neg=1.4,
    dro_beta=0.7,
    kl_cov_ratio=0.2,
    ppo_kl_coef=0.6,
    dppo_max_ratio=DUAL,
    vespo_k_pos=1.5,
    vespo_lambda_pos=2.5,
    vespo_k_neg=3.5,
    vespo_lambda_neg=0.5,
)


def assert_equal(found: tuple[float, Tensor], expected: tuple[float, Tensor]) -> None:
    assert found[0] == pytest.approx(expected[0], rel=1e-5, abs=1e-5)
    assert torch.allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


def batch(seed: int, *, spread: float = 0.4, equal_in_row: bool = False, weights: bool = False) -> WeighedInputs:
    """Five rows of 1 to 7 tokens, as a peer takes them: no row is empty, padding is zero."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(WIDTH) < torch.tensor([7, 1, 3, 5, 7])[:, None]
    noise = torch.randn(4, 5, WIDTH, generator=generator)
    log_probs = -0.05 - noise[0].abs()
    advantages = noise[2][:, :1].expand(-1, WIDTH) if equal_in_row else noise[2]
    columns = {
        "log_probs": log_probs,
        "old_log_probs": (log_probs - spread * noise[1]).clamp(max=-1e-3),
        "advantages": advantages,
        **({"weights": noise[3].abs()} if weights else {}),
    }
    totals = BatchTotals(num_tokens=float(mask.sum()), num_sequences=5.0, max_response_tokens=WIDTH)
    inputs = WeighedInputs(
        response_mask=mask, totals=totals, **{name: torch.where(mask, c, 0.0) for name, c in columns.items()}
    )
    rank = torch.zeros(mask.shape)
    rank[mask] = covariance_ranks(inputs.log_probs[mask], inputs.advantages[mask])
    return replace(inputs, covariance_rank=rank)


def differentiated(loss: Callable[[Tensor], Tensor], log_probs: Tensor) -> tuple[float, Tensor]:
    log_probs = log_probs.clone().requires_grad_()
    value = loss(log_probs)
    torch.autograd.backward(value)
    assert log_probs.grad is not None
    return float(value.detach()), log_probs.grad


def trls(
    trl: Any,
    inputs: WeighedInputs,
    *,
    loss_type: str,
    level: str = "token",
    delta: float | None = None,
    low: float = LOW,
    high: float = HIGH,
    columns: dict[str, Tensor] | None = None,
    entropies: Tensor | None = None,
    **own: Any,
) -> tuple[float, Tensor]:
    """GRPOTrainer's loss on these columns and its own ``columns``; advantages are one number per response.

    Args:
        own: attributes of the trainer, or of its arguments.
    """
    given = {
        "prompt_ids": torch.zeros(5, 1),
        "prompt_mask": torch.ones(5, 1),
        "completion_ids": torch.zeros(5, WIDTH),
        "completion_mask": inputs.response_mask.long(),
        "advantages": inputs.advantages[:, 0],
        "old_per_token_logps": inputs.old_log_probs,
        "num_items_in_batch": inputs.response_mask.sum(),
        **(columns or {}),
    }
    trainer = MagicMock(
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=low,
        epsilon_high=high,
        beta=0.0,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        max_completion_length=WIDTH,
        _entropy_bonus_enabled=False,
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        tools=None,
    )
    trainer.args = MagicMock(delta=delta, sapo_temperature_pos=0.9, sapo_temperature_neg=1.4, steps_per_generation=1)
    for name in ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"):
        setattr(trainer.args, name, getattr(CONFIG, name))
    for name in ("get_gamma_weights", "get_off_policy_mask"):
        setattr(trainer, name, getattr(trl.GRPOTrainer, name))
    trainer.get_high_entropy_mask = partial(trl.GRPOTrainer.get_high_entropy_mask, trainer)
    trainer.accelerator.pad_across_processes = lambda x, **_: x
    for name, value in own.items():
        setattr(trainer, name, value)
        setattr(trainer.args, name, value)
    trainer.accelerator.num_processes = 1
    trainer.accelerator.gather = trainer.accelerator.gather_for_metrics = lambda x: x
    trainer.accelerator.reduce = lambda x, **_: x
    trainer.model.training = False

    def loss(log_probs: Tensor) -> Tensor:
        trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
            log_probs,
            torch.zeros_like(log_probs) if entropies is None else entropies,
            None,
        )
        value = trl.GRPOTrainer._compute_loss(trainer, None, given)
        assert isinstance(value, Tensor)
        return value

    return differentiated(loss, inputs.log_probs)
