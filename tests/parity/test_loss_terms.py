"""Compare the terms of the actor's loss that are not the policy loss with TRL 1.16, in value and gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.parity._losses import HIGH, LOW, assert_equal, batch, differentiated, trls
from tests.unit._policy_losses import WeighedInputs
from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.entropy import is_high_entropy
from verl_like.config.schema import ActorConfig

CONFIG = ActorConfig(clip_ratio_low=LOW, clip_ratio_high=HIGH)


@pytest.fixture(scope="module")
def trl() -> Any:
    return pytest.importorskip("trl.trainer.grpo_trainer", reason="trl is not installed: make peers")


def ours(inputs: WeighedInputs, config: ActorConfig, **columns: Tensor) -> tuple[float, Tensor]:
    given = {
        "response_mask": inputs.response_mask,
        "old_log_probs": inputs.old_log_probs,
        "advantages": inputs.advantages,
        **columns,
    }
    return differentiated(
        lambda log_probs: ActorLoss(config)({"log_probs": log_probs}, given, inputs.totals).loss, inputs.log_probs
    )


def shifted(inputs: WeighedInputs, seed: int, spread: float = 0.5) -> Tensor:
    """Log-probs of another model."""
    noise = torch.randn(inputs.log_probs.shape, generator=torch.Generator().manual_seed(100 + seed))
    return torch.where(inputs.response_mask, (inputs.log_probs + spread * noise).clamp(max=-1e-3), 0.0)


@pytest.mark.parametrize("threshold", [0.02, 0.1])
def test_the_off_policy_mask_equals_trl(trl: Any, threshold: float) -> None:
    differ = 0
    for seed in range(6):
        inputs = batch(seed, equal_in_row=True)
        engine = shifted(inputs, seed)
        found = ours(inputs, replace(CONFIG, off_policy_mask_threshold=threshold), rollout_log_probs=engine)
        assert_equal(
            found,
            trls(
                trl,
                inputs,
                loss_type="dapo",
                columns={"sampling_per_token_logps": engine},
                off_policy_mask_threshold=threshold,
            ),
        )
        differ += found[0] != ours(inputs, CONFIG)[0]
    assert differ, "some responses should be masked"


@pytest.mark.parametrize("is_unbiased", [True, False])
def test_the_kl_in_the_loss_equals_trl(trl: Any, is_unbiased: bool) -> None:
    for seed in range(6):
        inputs = batch(seed, equal_in_row=True)
        ref = shifted(inputs, seed)
        config = replace(CONFIG, kl_loss_coef=0.3, weigh_kl_by_ratio=is_unbiased)
        expected = trls(
            trl,
            inputs,
            loss_type="dapo",
            columns={"ref_per_token_logps": ref},
            beta=0.3,
            use_bias_correction_kl=is_unbiased,
        )
        assert_equal(ours(inputs, config, ref_log_probs=ref), expected)


@pytest.mark.parametrize("share", [0.2, 0.55])
def test_the_tokens_of_highest_entropy_equal_trl_where_one_micro_batch_is_the_whole_mini_batch(
    trl: Any, share: float
) -> None:
    """TRL ranks the tokens of one micro-batch on all processes, by the entropy of the policy that is updated."""
    for seed in range(6):
        inputs = batch(seed, equal_in_row=True)
        mask = inputs.response_mask
        entropies = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed))
        chosen = torch.zeros_like(mask)
        chosen[mask] = is_high_entropy(entropies[mask], share)
        expected = trls(trl, inputs, loss_type="dapo", entropies=entropies, top_entropy_quantile=share)
        assert_equal(ours(inputs, CONFIG, is_high_entropy=chosen), expected)
