"""State passed from one step to the next: the KL coefficient, and whether the gap between engine and trainer is
large enough to be corrected.
"""

from __future__ import annotations

import json

import pytest

from verl_like.config.schema import ActorConfig, AlgorithmConfig, Config, CorrectionConfig
from verl_like.training.progress import Steering

KL_MEAN = "reward/kl_penalty_mean"
GAP = "rollout/log_prob_diff_mean"


def steered(coef: float, measured_kl: float, *, num_responses: int = 50) -> float:
    """Return the coefficient after a step with this KL per response; target 0.1 nats, horizon 100 responses."""
    config = AlgorithmConfig(kl_coef=0.2, kl_target=0.1, kl_horizon=100)
    return Steering(kl_coef=coef).after({KL_MEAN: coef * measured_kl}, config, num_responses=num_responses).kl_coef


# --- rollout correction


def corrected(
    correction: CorrectionConfig, *, last_gap: float | None = None, gap_now: float | None = None, **actor: object
) -> bool:
    config = Config(algorithm=AlgorithmConfig(rollout_correction=correction), actor=ActorConfig(**actor))  # type: ignore[arg-type]
    return Steering(kl_coef=0.0, log_prob_gap=last_gap).is_corrected(config, gap_now=gap_now)


@pytest.mark.parametrize(
    ("last_gap", "gap_now", "is_corrected"),
    [
        (None, None, True),  # nothing is measured yet: correcting equal policies does no harm
        (None, 1e-2, True),
        (None, 1e-6, False),
        (1e-2, None, True),
        (1e-6, None, False),
        (1e-6, 1e-2, True),
        (1e-2, 1e-6, False),  # what this step measured counts, not the last
        (1e-2, 0.0, False),
        (None, 1e-4, True),  # min_gap itself is not below min_gap
    ],
)
def test_correction_uses_the_newest_gap(last_gap: float | None, gap_now: float | None, is_corrected: bool) -> None:
    assert corrected(CorrectionConfig(min_gap=1e-4), last_gap=last_gap, gap_now=gap_now) is is_corrected


@pytest.mark.parametrize("gap", [None, 1.0])
def test_a_correction_that_is_off_stays_off(gap: float | None) -> None:
    assert not corrected(CorrectionConfig(level="off"), last_gap=gap, gap_now=gap)


@pytest.mark.parametrize(
    "kept", [CorrectionConfig(level="off", rejection="token"), CorrectionConfig(level="off", veto_threshold=1e-4)]
)
def test_rejection_and_veto_are_corrections_without_a_level(kept: CorrectionConfig) -> None:
    assert corrected(kept, gap_now=0.01)


@pytest.mark.parametrize("gap", [None, 0.01])
def test_the_engines_own_log_probs_need_no_correction(gap: float | None) -> None:
    assert not corrected(CorrectionConfig(), last_gap=gap, gap_now=gap, use_rollout_log_probs=True)
    assert corrected(CorrectionConfig(), last_gap=gap, gap_now=gap, use_rollout_log_probs=False)


def test_a_step_hands_its_gap_to_the_next() -> None:
    first = Steering(kl_coef=0.0)
    second = first.after({GAP: 0.02}, AlgorithmConfig(), num_responses=8)
    assert second == Steering(kl_coef=0.0, log_prob_gap=0.02)
    assert second.after({GAP: 0.03}, AlgorithmConfig(), num_responses=8).log_prob_gap == 0.03
    assert first.log_prob_gap is None, "a step that fails later leaves the state as it was"


def test_a_step_that_measured_no_gap_keeps_the_last_one() -> None:
    """In the critic's warm-up no actor pass runs."""
    assert Steering(kl_coef=0.0, log_prob_gap=0.02).after({}, AlgorithmConfig(), num_responses=8).log_prob_gap == 0.02


# --- the KL coefficient


@pytest.mark.parametrize(
    ("measured_kl", "expected"),
    [
        (0.1, 0.2),  # on target
        (0.11, 0.2 * (1 + 0.1 * 0.5)),  # 10 % above, 50 of 100 responses
        (0.09, 0.2 * (1 - 0.1 * 0.5)),
        (5.0, 0.2 * (1 + 0.2 * 0.5)),  # the error counts to 20 %
        (0.0, 0.2 * (1 - 0.2 * 0.5)),
        (-0.3, 0.2 * (1 - 0.2 * 0.5)),  # k1 is unbiased, so it may come out negative
    ],
)
def test_the_adaptive_coefficient_steers_to_the_target(measured_kl: float, expected: float) -> None:
    """1909.08593, section 2.2. The metric holds the penalty, coefficient times KL, so it is divided again."""
    assert steered(0.2, measured_kl) == pytest.approx(expected, rel=1e-6)


def test_what_is_steered_is_the_kl_and_not_the_penalty() -> None:
    assert steered(0.4, 0.11) / 0.4 == pytest.approx(steered(0.2, 0.11) / 0.2)


def test_more_responses_move_the_coefficient_further() -> None:
    assert steered(0.2, 0.11, num_responses=100) == pytest.approx(0.2 * 1.1)


def test_a_policy_that_stays_far_off_raises_the_coefficient_step_by_step() -> None:
    coef = 0.2
    for _ in range(10):
        coef = steered(coef, 3.0)
    assert coef == pytest.approx(0.2 * 1.1**10)


def test_without_a_target_the_coefficient_stays() -> None:
    config = AlgorithmConfig(kl_coef=0.2)
    assert Steering(kl_coef=0.2).after({KL_MEAN: 9.0}, config, num_responses=50).kl_coef == 0.2
    assert Steering(kl_coef=0.0).after({}, AlgorithmConfig(), num_responses=50).kl_coef == 0.0, (
        "without KL there is no such metric"
    )


def test_a_checkpoint_brings_the_state_back() -> None:
    for state in (Steering(kl_coef=0.1 + 0.2, log_prob_gap=1e-2 / 3), Steering(kl_coef=0.0)):
        assert Steering(**json.loads(json.dumps(vars(state)))) == state
