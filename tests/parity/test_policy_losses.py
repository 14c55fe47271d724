"""Compare policy losses and KL with verl 0.9.1 and TRL 1.16: equal to 1e-5 in value and gradient, or the difference
and why ours is right.

``make peers`` installs them; without, the tests are skipped.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from tests.parity._losses import CONFIG, DUAL, HIGH, LOW, WIDTH, assert_equal, batch, differentiated, trls
from tests.unit._policy_losses import WeighedInputs, loss_of
from verl_like.algorithms.kl import kl
from verl_like.algorithms.kl_controller import AdaptiveKl
from verl_like.algorithms.policy_losses import POLICY_LOSSES
from verl_like.algorithms.types import BatchTotals
from verl_like.config.schema import PolicyLossConfig

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
NAMES = {"ppo": "vanilla", "gmpo": "geo_mean"}  # ours -> verl's, where they differ


@pytest.fixture(scope="module")
def verl() -> Any:
    return pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed: make peers")


@pytest.fixture(scope="module")
def trl() -> Any:
    return pytest.importorskip("trl.trainer.grpo_trainer", reason="trl is not installed: make peers")


def ours(name: str, inputs: WeighedInputs, config: PolicyLossConfig) -> tuple[float, Tensor]:
    return differentiated(
        lambda log_probs: loss_of(POLICY_LOSSES[name], replace(inputs, log_probs=log_probs), config).loss,
        inputs.log_probs,
    )


def verls(
    verl: Any, name: str, inputs: WeighedInputs, mode: str, *, low: float = LOW, high: float = HIGH, **own: Any
) -> tuple[float, Tensor]:
    """verl's loss of that name of ours; ``own`` are fields of its policy-loss section."""
    from verl.workers.config.actor import ActorConfig
    from verl.workers.config.actor import PolicyLossConfig as Section

    section = Section(**{"dro_beta": 0.7, "kl_cov_ratio": 0.2, "ppo_kl_coef": 0.6, **own})
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=DUAL,
        tau_pos=0.9,
        tau_neg=1.4,
        policy_loss=section,
    )
    loss = verl.get_policy_loss_fn(NAMES.get(name, name))
    return differentiated(
        lambda log_probs: loss(
            old_log_prob=inputs.old_log_probs,
            log_prob=log_probs,
            advantages=inputs.advantages,
            response_mask=inputs.response_mask,
            loss_agg_mode=mode,
            config=config,
            rollout_is_weights=inputs.weights,
        )[0],
        inputs.log_probs,
    )


# ---- verl: equal


@pytest.mark.parametrize("name", ["ppo", "gspo", "cispo", "gpg", "dro", "dppo_tv", "dppo_kl"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weights", [False, True])
def test_token_losses_equal_verl(verl: Any, name: str, mode: str, weights: bool) -> None:
    """Under verl's configuration dppo truncates at clip_ratio_c = 3, although its code means 20; ours has a key of its
    own for it.
    """
    low, high = (0.01, 0.02) if name.startswith("dppo") else (LOW, HIGH)
    for seed in range(5):
        inputs = batch(seed, weights=weights, spread=1.0 if name == "ppo" else 0.4)
        found = ours(name, inputs, replace(CONFIG, loss_aggregation=mode, clip_ratio_low=low, clip_ratio_high=high))
        assert_equal(found, verls(verl, name, inputs, mode, low=low, high=high))


def test_sapo_equals_verl_under_its_only_aggregation(verl: Any) -> None:
    """verl's sapo uses seq-mean-token-mean whatever loss_agg_mode is; ours uses the configured one."""
    for seed in range(5):
        inputs = batch(seed, weights=True)
        asked_for_sum = verls(verl, "sapo", inputs, "token-sum")
        assert_equal(ours("sapo", inputs, replace(CONFIG, loss_aggregation="seq-mean-token-mean")), asked_for_sum)
        assert ours("sapo", inputs, replace(CONFIG, loss_aggregation="token-sum"))[0] != pytest.approx(
            asked_for_sum[0], rel=1e-2
        )


def test_gmpo_equals_verl_under_its_only_aggregation(verl: Any) -> None:
    for seed in range(5):
        for inputs in (batch(seed), batch(seed, equal_in_row=True)):
            found = ours("gmpo", inputs, replace(CONFIG, loss_aggregation="seq-mean-token-mean"))
            assert_equal(found, verls(verl, "gmpo", inputs, "token-mean"))


@pytest.mark.parametrize("name", ["gspo", "gmpo"])
def test_a_token_past_20_nats_counts_in_the_mean_as_in_verl(verl: Any, name: str) -> None:
    inputs = batch(0, equal_in_row=True)
    inputs.advantages[0] = 1.0
    inputs.old_log_probs[0, 0] = 0.0
    inputs.log_probs[0, 0] = -30.0
    mode = "seq-mean-token-mean"
    found = ours(name, inputs, replace(CONFIG, loss_aggregation=mode))
    assert found[1][0].any(), "a response that is held would say nothing"
    assert_equal(found, verls(verl, name, inputs, mode))


def test_reinforce_equals_verl(verl: Any) -> None:
    config = MagicMock(global_batch_info={})
    for seed in range(5):
        inputs = batch(seed, weights=True)
        expected = differentiated(
            lambda log_probs, inputs=inputs: verl.compute_policy_loss_reinforce(
                rollout_log_prob=inputs.old_log_probs,
                log_prob=log_probs,
                advantages=inputs.advantages,
                response_mask=inputs.response_mask,
                loss_agg_mode="seq-mean-token-sum",
                config=config,
                rollout_is_weights=inputs.weights,
            )[0],
            inputs.log_probs,
        )
        assert_equal(ours("reinforce", inputs, replace(CONFIG, loss_aggregation="seq-mean-token-sum")), expected)


# ---- verl: different, and why


def test_gmpo_weighs_a_response_with_a_rejected_token_by_what_is_left(verl: Any) -> None:
    """verl takes the geometric mean of the weights: one rejected token (weight 0) nearly silences its whole response.
    Ours is the mean.
    """
    inputs = batch(0, equal_in_row=True)
    weights = torch.ones_like(inputs.log_probs)
    weights[0, 0] = 0.0
    config = replace(CONFIG, loss_aggregation="seq-mean-token-mean")
    plain = ours("gmpo", inputs, config)[1]
    found = ours("gmpo", replace(inputs, weights=weights), config)[1]
    peer = verls(verl, "gmpo", replace(inputs, weights=weights), "token-mean")[1]
    assert torch.allclose(found[0], plain[0] * 6 / 7, rtol=1e-5)
    assert torch.allclose(peer[0], plain[0] * 1e-10 ** (1 / 7), rtol=1e-4)
    assert_equal((0.0, found[1:]), (0.0, peer[1:]))


def test_an_empty_row_does_not_dilute_gmpo(verl: Any) -> None:
    """verl's gmpo divides by the micro-batch's rows, failed samples included; ours by the mini-batch's sequences."""
    inputs = batch(1)
    mask = inputs.response_mask.clone()
    mask[2] = False
    totals = BatchTotals(num_tokens=float(mask.sum()), num_sequences=4.0, max_response_tokens=WIDTH)
    inputs = replace(inputs, response_mask=mask, totals=totals)
    found = ours("gmpo", inputs, replace(CONFIG, loss_aggregation="seq-mean-token-mean"))
    peer = verls(verl, "gmpo", inputs, "token-mean")
    assert_equal(found, (peer[0] * 5 / 4, peer[1] * 5 / 4))


@pytest.mark.parametrize("num_chosen", [1, 5, 22])
def test_kl_cov_equals_verl_where_one_micro_batch_is_the_whole_mini_batch(verl: Any, num_chosen: int) -> None:
    """Both take the top share by covariance; verl rounds it down (but takes one token at least), ours rounds it up."""
    for seed in range(5):
        inputs = batch(seed)  # 23 tokens, ranked by the current log-probs, as verl does
        found = ours("kl_cov", inputs, replace(CONFIG, kl_cov_ratio=(num_chosen - 0.5) / 23))
        assert_equal(found, verls(verl, "kl_cov", inputs, "token-mean", kl_cov_ratio=(num_chosen + 0.5) / 23))


def test_kl_cov_of_two_micro_batches_is_that_of_one_here_and_not_in_verl(verl: Any) -> None:
    inputs = batch(3)
    config = replace(CONFIG, loss_aggregation="token-sum", kl_cov_ratio=0.1)

    def rows(start: int, stop: int) -> WeighedInputs:
        assert inputs.covariance_rank is not None
        return replace(
            inputs,
            log_probs=inputs.log_probs[start:stop],
            old_log_probs=inputs.old_log_probs[start:stop],
            advantages=inputs.advantages[start:stop],
            response_mask=inputs.response_mask[start:stop],
            covariance_rank=inputs.covariance_rank[start:stop],
        )

    halves = (rows(0, 2), rows(2, 5))
    assert sum(ours("kl_cov", half, config)[0] for half in halves) == pytest.approx(
        ours("kl_cov", inputs, config)[0], rel=1e-6
    )
    peer = [verls(verl, "kl_cov", part, "token-sum", kl_cov_ratio=0.1)[0] for part in (inputs, *halves)]
    assert abs(peer[1] + peer[2] - peer[0]) > 1e-2


def test_clip_cov_is_what_verl_draws_at_random_in_the_mean(verl: Any) -> None:
    """verl draws its tokens anew at each call, by bounds on the covariance; ours spreads the same share evenly over a
    band of ranks.

    Where the band is the same set of tokens and all of it is cut, both are equal.
    """
    inputs = batch(4)
    mask = inputs.response_mask
    assert inputs.covariance_rank is not None
    log_probs, advantages = inputs.log_probs[mask], inputs.advantages[mask]
    covariances = ((log_probs - log_probs.mean()) * (advantages - advantages.mean())).sort(descending=True).values
    # Places 2 to 6 of 23 lie between two bounds on the covariance.
    upper, lower = float(covariances[1] + covariances[2]) / 2, float(covariances[6] + covariances[7]) / 2
    no_clip = {"clip_ratio_low": 1.0, "clip_ratio_high": 1e9, "clip_ratio_dual": 0.0}
    whole_band = replace(
        CONFIG, clip_cov_rank_low=2 / 23, clip_cov_rank_high=7 / 23, clip_cov_ratio=7 / 23 - 2 / 23, **no_clip
    )
    bounds = {"clip_cov_lb": lower, "clip_cov_ub": upper}
    assert_equal(
        ours("clip_cov", inputs, whole_band),
        verls(verl, "clip_cov", inputs, "token-mean", low=1.0, high=1e9, clip_cov_ratio=5.5 / 23, **bounds),
    )

    one_of_them = replace(whole_band, clip_cov_ratio=1 / 23)
    assert ours("clip_cov", inputs, one_of_them)[0] == ours("clip_cov", inputs, one_of_them)[0]
    draws = {
        verls(verl, "clip_cov", inputs, "token-mean", low=1.0, high=1e9, clip_cov_ratio=1.5 / 23, **bounds)[0]
        for _ in range(40)
    }
    assert len(draws) > 1
    assert any(ours("clip_cov", inputs, one_of_them)[0] == pytest.approx(draw, abs=1e-5) for draw in draws)


def test_clip_cov_and_kl_cov_survive_a_ratio_that_overflows_in_verl(verl: Any) -> None:
    """verl's clip_cov and kl_cov exponentiate without a bound: at 90 nats their loss is infinite."""
    inputs = batch(5)
    inputs.old_log_probs[0, 0] -= 90.0
    inputs.advantages[0, 0] = -1.0
    for name in ("clip_cov", "kl_cov"):
        assert math.isinf(verls(verl, name, inputs, "token-mean", clip_cov_ratio=0.1)[0])
        found = ours(name, inputs, replace(CONFIG, clip_cov_ratio=0.01))
        assert math.isfinite(found[0]) and found[1].isfinite().all()


# ---- verl: KL


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs", "k1+", "k2+", "k3+", "abs+"])
def test_kl_equals_verl(verl: Any, kind: str) -> None:
    inputs = batch(0, spread=1.0)
    ref = inputs.old_log_probs
    expected = differentiated(lambda log_probs: verl.kl_penalty(log_probs, ref, kind).sum(), inputs.log_probs)
    found = differentiated(lambda log_probs: kl(log_probs, ref, kind).sum(), inputs.log_probs)
    assert_equal(found, expected)


def test_k3_far_out_keeps_a_gradient_that_verl_loses(verl: Any) -> None:
    """verl holds k3 at 10, so a token 3 nats and more below the reference is no longer pulled back; ours grows on,
    finite.
    """
    log_probs, ref = torch.tensor([-3.0, -80.0]), torch.zeros(2)
    peer = differentiated(lambda x: verl.kl_penalty(x, ref, "k3").sum(), log_probs)[1]
    found = differentiated(lambda x: kl(x, ref, "k3").sum(), log_probs)[1]
    assert peer.tolist() == [0.0, 0.0]
    assert float(found[0]) == pytest.approx(1 - math.exp(3.0)) and float(found[1]) < -1e8 and found.isfinite().all()


def test_adaptive_kl_equals_verl(verl: Any) -> None:
    peer = verl.AdaptiveKLController(init_kl_coef=0.2, target_kl=6.0, horizon=10_000)
    controller = AdaptiveKl(coef=0.2, target=6.0, horizon=10_000)
    for measured in (3.0, 6.5, 40.0, 0.0, 6.0, 7.1):
        peer.update(current_kl=measured, n_steps=512)
        controller = controller.updated(measured, num_responses=512)
        assert controller.coef == pytest.approx(float(peer.value), rel=1e-12)


# ---- TRL


TRL_TWINS = {
    "ppo": ("ppo", {"clip_ratio_dual": 0.0, "loss_aggregation": "token-mean"}, {"loss_type": "dapo"}),
    "ppo seq-mean-token-mean": (
        "ppo",
        {"clip_ratio_dual": 0.0, "loss_aggregation": "seq-mean-token-mean"},
        {"loss_type": "grpo"},
    ),
    "ppo Dr. GRPO": (
        "ppo",
        {"clip_ratio_dual": 0.0, "loss_aggregation": "seq-mean-token-sum-norm"},
        {"loss_type": "dr_grpo"},
    ),
    "ppo dual clip": (
        "ppo",
        {"clip_ratio_dual": 1.5, "loss_aggregation": "token-mean"},
        {"loss_type": "dapo", "delta": 1.5},
    ),
    "sapo": ("sapo", {"loss_aggregation": "seq-mean-token-mean"}, {"loss_type": "sapo"}),
    "gspo": ("gspo", {"loss_aggregation": "seq-mean-token-mean"}, {"loss_type": "grpo", "level": "sequence"}),
    "vespo": ("vespo", {"loss_aggregation": "token-mean"}, {"loss_type": "vespo"}),
    "luspo": ("gspo", {"loss_aggregation": "seq-mean-token-sum"}, {"loss_type": "luspo", "level": "sequence"}),
    # TRL bounds cispo's weight from above only, and by the bound itself.
    "cispo": (
        "cispo",
        {"clip_ratio_low": 1.0, "loss_aggregation": "token-mean"},
        {"loss_type": "cispo", "high": 1 + HIGH},
    ),
}


@pytest.mark.parametrize("twin", sorted(TRL_TWINS))
def test_losses_equal_trl(trl: Any, twin: str) -> None:
    name, changes, peer = TRL_TWINS[twin]
    for seed in range(5):
        inputs = batch(seed, equal_in_row=True, spread=0.8)
        # TRL takes the advantage from the row's first column.
        assert inputs.response_mask[:, 0].all()
        assert_equal(ours(name, inputs, replace(CONFIG, **changes)), trls(trl, inputs, **peer))
