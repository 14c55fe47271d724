"""Rollout correction against verl 0.9.1, whose helper gives whole-batch figures of one call; differences are tests of
their own.

TRL 1.16 has the same weights inline in a trainer method, where nothing can call them.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.correction import correction, finish, weight_sums
from verl_like.algorithms.types import BatchTotals
from verl_like.config.schema import CorrectionConfig

verl = pytest.importorskip(
    "verl.trainer.ppo.rollout_corr_helper", reason="verl is not installed (make peers)", exc_type=ImportError
)

SEEDS = range(5)
TOLERANCE = 1e-5


def rows(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs of the trainer, of the engine, and a mask with holes; every row has a token."""
    generator = torch.Generator().manual_seed(seed)
    rollout = -torch.rand(8, 9, generator=generator) * 3
    mask = torch.rand(8, 9, generator=generator) < 0.7
    mask[:, 0] = True
    return rollout + torch.randn(8, 9, generator=generator) * 0.5, rollout, mask


def ours(
    old: Tensor, rollout: Tensor, mask: Tensor, config: CorrectionConfig
) -> tuple[Tensor, Tensor, dict[str, float]]:
    totals = BatchTotals(
        num_tokens=float(mask.sum()), num_sequences=float(mask.any(-1).sum()), max_response_tokens=mask.shape[1]
    )
    found = correction(
        old, rollout, mask, config, totals=totals, mean_weight=weight_sums(old, rollout, mask, config).mean
    )
    return found.weights, found.kept, finish({name: float(value) for name, value in found.metrics.items()})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
@pytest.mark.parametrize("normalize", [False, True])
def test_weights_equal_verls(seed: int, level: str, mode: str, normalize: bool) -> None:
    old, rollout, mask = rows(seed)
    peer, metrics = verl.compute_rollout_correction_weights(
        old - rollout,
        mask.float(),
        rollout_is=level,
        rollout_is_threshold="0.5_2.0" if mode == "mask" else 2.0,
        rollout_is_batch_normalize=normalize,
    )
    config = CorrectionConfig(level=level, mode=mode, batch_normalize=normalize)
    weights, _, found = ours(old, rollout, mask, config)
    torch.testing.assert_close(weights, peer, rtol=TOLERANCE, atol=TOLERANCE)
    assert found["correction_ess_frac"] == pytest.approx(metrics["rollout_is_eff_sample_size"], abs=TOLERANCE)
    if normalize:
        mean = weight_sums(old, rollout, mask, config).mean
        assert mean == pytest.approx(metrics["rollout_is_batch_norm_factor"], abs=TOLERANCE)
    else:
        assert found["correction_weight_mean"] == pytest.approx(metrics["rollout_is_mean"], abs=TOLERANCE)
    if mode == "mask":
        assert found["correction_masked_frac"] == pytest.approx(metrics["rollout_is_oob_ratio"], abs=TOLERANCE)
    elif level == "token":
        assert found["correction_truncated_frac"] == pytest.approx(
            metrics["rollout_is_ratio_fraction_high"], abs=TOLERANCE
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("rejection", "name"), [("token", "token_k1"), ("sequence", "seq_sum_k1"), ("geometric", "seq_mean_k1")]
)
def test_rejection_equals_verls_with_reciprocal_bounds(seed: int, rejection: str, name: str) -> None:
    """verl bounds k1 = -log w, so its "lower_upper" bounds pi_rollout / pi_old; ours bound w = pi_old / pi_rollout like
    its weights.
    """
    old, rollout, mask = rows(seed)
    lower, upper = (0.8, 1.1) if rejection == "geometric" else (0.6, 1.4)
    peer, metrics = verl.compute_rollout_rejection_mask(
        old - rollout, mask.float(), rollout_rs=name, rollout_rs_threshold=f"{1 / upper}_{1 / lower}"
    )
    config = CorrectionConfig(level="off", rejection=rejection, rejection_lower=lower, rejection_upper=upper)
    _, kept, found = ours(old, rollout, mask, config)
    assert torch.equal(kept, peer.bool())
    assert 0 < kept.sum() < mask.sum(), "a case in which nothing or everything is rejected proves little"
    assert found["correction_rejected_frac"] == pytest.approx(metrics["rollout_rs_masked_fraction"], abs=TOLERANCE)


THEIR_NAMES = {
    "correction_kl_k1": "kl",
    "correction_kl_k3": "k3_kl",
    "correction_chi2_token": "chi2_token",
    "correction_chi2_sequence": "chi2_seq",
    "correction_log_ppl_gap_mean": "log_ppl_diff",
    "correction_log_ppl_gap_abs_mean": "log_ppl_abs_diff",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_gap_metrics_equal_verls(seed: int) -> None:
    old, rollout, mask = rows(seed)
    peer = verl.compute_offpolicy_metrics(old, rollout, mask.float())
    found = ours(old, rollout, mask, CorrectionConfig())[2]
    assert {name: found[name] for name in THEIR_NAMES} == {
        name: pytest.approx(peer[their_name], rel=TOLERANCE, abs=TOLERANCE) for name, their_name in THEIR_NAMES.items()
    }


# ---- where we differ


def test_a_failed_sample_is_no_sequence_for_us() -> None:
    """verl averages over rows, so a row without a token counts as a response without a gap and makes the rest look
    better.
    """
    old, rollout, mask = rows(0)
    mask[:4] = False
    peer = verl.compute_offpolicy_metrics(old, rollout, mask.float())["log_ppl_abs_diff"]
    found = ours(old, rollout, mask, CorrectionConfig())[2]["correction_log_ppl_gap_abs_mean"]
    assert found == pytest.approx(2 * peer, rel=TOLERANCE)
    assert found == pytest.approx(
        ours(old[4:], rollout[4:], mask[4:], CorrectionConfig())[2]["correction_log_ppl_gap_abs_mean"]
    )


def test_a_token_far_out_leaves_our_k3_finite() -> None:
    """verl's k3 overflows float32 above 88 nats and its chart has a gap; ours continues as the tangent at 20."""
    old, rollout, mask = torch.full((1, 2), 0.0), torch.full((1, 2), -100.0), torch.ones(1, 2, dtype=torch.bool)
    assert math.isinf(verl.compute_offpolicy_metrics(old, rollout, mask.float())["k3_kl"])
    assert math.isfinite(ours(old, rollout, mask, CorrectionConfig())[2]["correction_kl_k3"])


def test_rejection_of_a_sequence_checks_the_ratio_that_weighs_it() -> None:
    """verl clamps each token to 20 nats before its rejection sums them, but not before its weight does: two answers
    about one response.
    """
    old, rollout = torch.tensor([[30.0, -30.0]]), torch.tensor([[0.0, -5.0]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    peer, _ = verl.compute_rollout_rejection_mask(
        old - rollout, mask.float(), rollout_rs="seq_sum_k1", rollout_rs_threshold="0.5_2.0"
    )
    weight, _ = verl.compute_rollout_correction_weights(
        old - rollout, mask.float(), rollout_is="sequence", rollout_is_threshold=1e9
    )
    assert peer.all() and float(weight[0, 0]) == pytest.approx(math.exp(5), rel=1e-4)
    assert not ours(old, rollout, mask, CorrectionConfig(level="sequence", rejection="sequence"))[1].any()


def test_a_veto_is_verls_maximum_per_response_on_one_side() -> None:
    """verl 0.9.1 has no veto any more; seq_max_k2 rejects a token that is far off in either direction, a veto only one
    that the trainer holds for nearly impossible (the other direction is what truncation is for)."""
    log_ratio = torch.tensor([[0.0, -10.0], [0.0, 10.0], [0.0, 0.0]])
    mask = torch.ones(3, 2, dtype=torch.bool)
    peer, _ = verl.compute_rollout_rejection_mask(
        log_ratio, mask.float(), rollout_rs="seq_max_k2", rollout_rs_threshold=0.5 * math.log(1e-4) ** 2
    )
    kept = ours(log_ratio, torch.zeros_like(log_ratio), mask, CorrectionConfig(veto_threshold=1e-4))[1]
    assert peer.bool().any(-1).tolist() == [False, False, True]
    assert kept.any(-1).tolist() == [False, True, True]
