"""Rollout correction: hand-computed weights, rejections and metrics, exact enumeration of the estimators, identities,
refusals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from verl_like.algorithms.correction import Correction, WeightSums, correction, finish, is_needed, is_on, weight_sums
from verl_like.algorithms.types import BatchTotals
from verl_like.config.options import wrong_values
from verl_like.config.schema import Config, CorrectionConfig

LOG2 = math.log(2.0)
UNBOUNDED = 1e9  # above exp(20), the largest ratio there is

CONFIGS = [
    CorrectionConfig(level=level, mode=mode, rejection=rejection, veto_threshold=veto, batch_normalize=normalize)
    for level, mode, normalize, (rejection, veto) in itertools.product(
        ("token", "sequence", "off"),
        ("truncate", "mask"),
        (False, True),
        (("off", 0.0), ("off", 1e-4), ("token", 0.0), ("sequence", 1e-4), ("geometric", 0.0)),
    )
    if level != "off" or (mode == "truncate" and not normalize)
]


def named(config: CorrectionConfig) -> str:
    return f"{config.level}-{config.mode}-{config.rejection}-{config.veto_threshold:g}{'-normalized' * config.batch_normalize}"  # noqa: E501


def totals_of(mask: Tensor) -> BatchTotals:
    return BatchTotals(num_tokens=float(mask.sum()), num_sequences=float(mask.any(-1).sum()), max_response_tokens=10)


def corrected(
    log_ratio: Tensor,
    mask: Tensor,
    config: CorrectionConfig,
    totals: BatchTotals | None = None,
    mean_weight: float | None = None,
) -> Correction:
    """Return the correction of rows with log(old / rollout) = ``log_ratio``.

    Mean weight and totals are computed from these rows unless they are given.
    """
    rollout = torch.full_like(log_ratio, -1.5)
    if mean_weight is None and config.batch_normalize:
        mean_weight = weight_sums(rollout + log_ratio, rollout, mask, config).mean
    return correction(
        rollout + log_ratio, rollout, mask, config, totals=totals or totals_of(mask), mean_weight=mean_weight
    )


def random_rows(seed: int, rows: int = 6, width: int = 7, spread: float = 0.6) -> tuple[Tensor, Tensor]:
    """log-ratios and a mask that has holes, an empty row and padding."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, width, generator=generator) < 0.7
    mask[0] = False
    mask[1, 0] = True
    return torch.randn(rows, width, generator=generator) * spread, mask


def floats(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


# Two responses of two tokens and one of one; the rest is padding. Ratios 4, 1/2 | 1, 1/8 | 1.
RATIOS = torch.tensor([[4.0, 0.5], [1.0, 0.125], [1.0, 99.0]])
MASK = torch.tensor([[True, True], [True, True], [True, False]])


# ---- weights by hand


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (CorrectionConfig(), [[2.0, 0.5], [1.0, 0.125], [1.0, 0.0]]),
        (CorrectionConfig(upper=5.0), [[4.0, 0.5], [1.0, 0.125], [1.0, 0.0]]),
        (CorrectionConfig(mode="mask"), [[0.0, 0.5], [1.0, 0.0], [1.0, 0.0]]),
        (CorrectionConfig(mode="mask", lower=0.0, upper=5.0), [[4.0, 0.5], [1.0, 0.125], [1.0, 0.0]]),
        (CorrectionConfig(level="sequence", upper=5.0), [[2.0, 2.0], [0.125, 0.125], [1.0, 0.0]]),
        (CorrectionConfig(level="sequence", upper=1.5), [[1.5, 1.5], [0.125, 0.125], [1.0, 0.0]]),
        (CorrectionConfig(level="sequence", mode="mask", upper=5.0), [[2.0, 2.0], [0.0, 0.0], [1.0, 0.0]]),
        (CorrectionConfig(level="off"), [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]),
    ],
)
def test_weights_by_hand(config: CorrectionConfig, weights: list[list[float]]) -> None:
    found = corrected(RATIOS.log(), MASK, config)
    torch.testing.assert_close(found.weights, torch.tensor(weights), rtol=1e-6, atol=0)
    assert found.weights.dtype == torch.float32
    assert torch.equal(found.kept, torch.tensor(weights) > 0)


@pytest.mark.parametrize(
    ("rejection", "upper", "lower", "kept"),
    [
        ("token", 2.0, 0.5, [[False, True], [True, False], [True, False]]),
        ("token", 4.1, 0.0, [[True, True], [True, True], [True, False]]),
        # Products 2, 1/8, 1; geometric means sqrt(2), 1/sqrt(8), 1.
        ("sequence", 1.9, 0.1, [[False, False], [True, True], [True, False]]),
        ("sequence", 2.1, 0.5, [[True, True], [False, False], [True, False]]),
        ("geometric", 1.4, 0.35, [[False, False], [True, True], [True, False]]),
        ("geometric", 1.5, 0.36, [[True, True], [False, False], [True, False]]),
    ],
)
def test_rejection_by_hand(rejection: str, upper: float, lower: float, kept: list[list[bool]]) -> None:
    config = CorrectionConfig(level="off", rejection=rejection, rejection_upper=upper, rejection_lower=lower)
    found = corrected(RATIOS.log(), MASK, config)
    assert found.kept.tolist() == kept
    assert torch.equal(found.weights, found.kept.float())
    assert float(found.metrics["correction_rejected_frac"]) == pytest.approx((5 - sum(map(sum, kept))) / 5)


def test_a_veto_rejects_the_whole_response_and_no_other() -> None:
    found = corrected(RATIOS.log(), MASK, CorrectionConfig(veto_threshold=0.2))
    assert found.kept.tolist() == [[True, True], [False, False], [True, False]]
    assert float(found.metrics["correction_vetoed_frac"]) == pytest.approx(1 / 3)
    assert float(found.metrics["correction_kept_frac"]) == pytest.approx(3 / 5)


def test_a_veto_is_blind_to_padding() -> None:
    log_ratio = torch.tensor([[0.0, -30.0]])
    assert corrected(log_ratio, torch.tensor([[True, False]]), CorrectionConfig(veto_threshold=0.5)).kept.tolist() == [
        [True, False]
    ]


def test_a_ratio_on_its_bound_is_inside() -> None:
    log_ratio, mask = torch.tensor([[LOG2, -LOG2]]), torch.ones(1, 2, dtype=torch.bool)
    rollout = torch.zeros_like(log_ratio)
    for config in (CorrectionConfig(mode="mask"), CorrectionConfig(rejection="token")):
        found = correction(log_ratio, rollout, mask, config, totals=totals_of(mask), mean_weight=None)
        assert found.kept.all()


# ---- batch normalisation


def test_weight_sums_by_hand() -> None:
    rollout = torch.zeros_like(RATIOS)
    assert weight_sums(RATIOS.log(), rollout, MASK, CorrectionConfig()) == WeightSums(
        total=pytest.approx(2 + 0.5 + 1 + 0.125 + 1), count=5
    )
    assert weight_sums(RATIOS.log(), rollout, MASK, CorrectionConfig(mode="mask")) == WeightSums(
        total=pytest.approx(2.5), count=5
    )
    # One weight per sequence, however long: products 2, 1/8 and 1.
    assert weight_sums(RATIOS.log(), rollout, MASK, CorrectionConfig(level="sequence", upper=1.5)) == WeightSums(
        total=pytest.approx(1.5 + 0.125 + 1), count=3
    )


def test_weight_sums_of_chunks_add_up() -> None:
    log_ratio, mask = random_rows(3)
    for config in (CorrectionConfig(), CorrectionConfig(level="sequence"), CorrectionConfig(mode="mask")):
        zeros = torch.zeros_like(log_ratio)
        whole = weight_sums(log_ratio, zeros, mask, config)
        parts = [
            weight_sums(log_ratio[rows], zeros[rows], mask[rows], config)
            for rows in (slice(0, 1), slice(1, 4), slice(4, 6))
        ]
        added = WeightSums() + parts[0] + parts[1] + parts[2]
        assert added == WeightSums(total=pytest.approx(whole.total, rel=1e-9), count=whole.count)


@pytest.mark.parametrize(
    "config", [CorrectionConfig(batch_normalize=True), CorrectionConfig(batch_normalize=True, mode="mask")]
)
def test_normalised_token_weights_have_mean_one(config: CorrectionConfig) -> None:
    found = corrected(*random_rows(4), config)
    assert float(found.metrics["correction_weight_mean"]) == pytest.approx(1.0, rel=1e-5)


def test_normalised_sequence_weights_have_mean_one_over_sequences() -> None:
    log_ratio, mask = random_rows(5, spread=0.3)
    weights = corrected(log_ratio, mask, CorrectionConfig(level="sequence", batch_normalize=True)).weights
    assert float(weights.amax(-1)[mask.any(-1)].mean()) == pytest.approx(1.0, rel=1e-5)


def test_rejection_does_not_make_the_kept_weigh_more() -> None:
    plain = corrected(RATIOS.log(), MASK, CorrectionConfig(batch_normalize=True))
    rejecting = corrected(
        RATIOS.log(),
        MASK,
        CorrectionConfig(batch_normalize=True, rejection="sequence", rejection_lower=0.2, rejection_upper=3.0),
    )
    assert rejecting.kept.tolist() == [[True, True], [False, False], [True, False]]
    assert torch.equal(rejecting.weights, torch.where(rejecting.kept, plain.weights, 0.0))


def test_a_batch_whose_every_weight_is_masked_has_zero_weights() -> None:
    log_ratio, mask = torch.full((2, 3), 5.0), torch.ones(2, 3, dtype=torch.bool)
    found = corrected(log_ratio, mask, CorrectionConfig(mode="mask", batch_normalize=True))
    assert not found.weights.any() and not found.kept.any()
    assert finish(floats(found.metrics))["correction_ess_frac"] == 0


# ---- metrics by hand


def test_gap_metrics_by_hand() -> None:
    found = floats(corrected(RATIOS.log(), MASK, CorrectionConfig(level="sequence")).metrics)
    ratios, products, sizes = [4.0, 0.5, 1.0, 0.125, 1.0], [2.0, 0.125, 1.0], [2, 2, 1]
    gaps = [-math.log(product) / size for product, size in zip(products, sizes, strict=True)]
    expected = {
        "correction_kl_k1": sum(-math.log(r) for r in ratios) / 5,
        "correction_kl_k3": sum(r - 1 - math.log(r) for r in ratios) / 5,
        "correction_chi2_token": sum(r**2 for r in ratios) / 5 - 1,
        "correction_chi2_sequence": sum(p**2 for p in products) / 3 - 1,
        "correction_log_ppl_gap_mean": sum(gaps) / 3,
        "correction_log_ppl_gap_abs_mean": sum(map(abs, gaps)) / 3,
    }
    assert {name: found[name] for name in expected} == {
        name: pytest.approx(value, rel=1e-5) for name, value in expected.items()
    }


@pytest.mark.parametrize(
    ("config", "weights", "fracs"),
    [
        (
            CorrectionConfig(),
            [2.0, 0.5, 1.0, 0.125, 1.0],
            {"correction_truncated_frac": 1 / 5, "correction_kept_frac": 1.0},
        ),
        (
            CorrectionConfig(mode="mask"),
            [0.0, 0.5, 1.0, 0.0, 1.0],
            {"correction_masked_frac": 2 / 5, "correction_kept_frac": 3 / 5},
        ),
        (
            CorrectionConfig(level="sequence", upper=1.5),
            [1.5, 1.5, 0.125, 0.125, 1.0],
            {"correction_truncated_frac": 2 / 5},
        ),
        (
            CorrectionConfig(level="off", rejection="token", rejection_lower=0.0),
            [0.0, 1.0, 1.0, 1.0, 1.0],
            {"correction_rejected_frac": 1 / 5},
        ),
    ],
)
def test_weight_metrics_by_hand(config: CorrectionConfig, weights: list[float], fracs: dict[str, float]) -> None:
    found = finish(floats(corrected(RATIOS.log(), MASK, config).metrics))
    mean, squares = sum(weights) / 5, sum(w**2 for w in weights) / 5
    expected = {"correction_weight_mean": mean, "correction_ess_frac": mean**2 / squares, **fracs}
    assert {name: found[name] for name in expected} == {
        name: pytest.approx(value, rel=1e-6) for name, value in expected.items()
    }
    assert "correction_weight_squared_mean" not in found


def test_finish_leaves_other_names_and_respects_the_prefix() -> None:
    shares = {"actor/loss": 0.3, "actor/correction_weight_mean": 0.5, "actor/correction_weight_squared_mean": 0.5}
    assert finish(shares, prefix="actor/") == {
        "actor/loss": 0.3,
        "actor/correction_weight_mean": 0.5,
        "actor/correction_ess_frac": 0.5,
    }
    assert finish({"actor/loss": 0.3}, prefix="actor/") == {"actor/loss": 0.3}


def test_chi_square_of_a_small_gap_is_not_lost_to_rounding() -> None:
    # E[w^2] - 1 with w = exp(1e-6 or -1e-6): in float32 w^2 has steps of 1e-7, as large as a twentieth of the answer.
    log_ratio, mask = torch.tensor([[1e-6, 1e-6, 1e-6, -1e-6]]), torch.ones(1, 4, dtype=torch.bool)
    found = correction(
        log_ratio, torch.zeros_like(log_ratio), mask, CorrectionConfig(), totals=totals_of(mask), mean_weight=None
    )
    assert float(found.metrics["correction_chi2_token"]) == pytest.approx(1e-6, rel=1e-4)


# ---- the estimators, by exact enumeration

OLD, ROLLOUT = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.3, 0.5]).double()
VALUES = torch.tensor([1.0, -2.0, 5.0]).double()


def test_weighted_mean_over_tokens_of_rollout_is_the_expectation_under_old() -> None:
    mask = torch.ones(3, 1, dtype=torch.bool)
    found = correction(
        OLD.log()[:, None],
        ROLLOUT.log()[:, None],
        mask,
        CorrectionConfig(upper=UNBOUNDED),
        totals=totals_of(mask),
        mean_weight=None,
    )
    expected = float((OLD * VALUES).sum())
    assert float((ROLLOUT * found.weights[:, 0] * VALUES).sum()) == pytest.approx(expected, rel=1e-6)
    assert float((ROLLOUT * VALUES).sum()) != pytest.approx(expected, rel=0.1)


def test_weighted_mean_over_sequences_of_rollout_is_the_expectation_under_old() -> None:
    # All 27 sequences of three tokens; the second and third token's distribution depends on the one before.
    ids = torch.tensor(list(itertools.product(range(3), repeat=3)))

    def token_probs(start: Tensor) -> Tensor:
        steps = torch.stack([start.roll(shift) for shift in range(3)])  # [last token, next token]
        return torch.stack([start[ids[:, 0]], steps[ids[:, 0], ids[:, 1]], steps[ids[:, 1], ids[:, 2]]], -1)

    old, rollout, mask = token_probs(OLD), token_probs(ROLLOUT), torch.ones(27, 3, dtype=torch.bool)
    assert float(old.prod(-1).sum()) == pytest.approx(1.0)
    found = correction(
        old.log(),
        rollout.log(),
        mask,
        CorrectionConfig(level="sequence", upper=UNBOUNDED),
        totals=totals_of(mask),
        mean_weight=None,
    )
    scores = VALUES[ids].prod(-1)
    assert float((rollout.prod(-1) * found.weights[:, 0] * scores).sum()) == pytest.approx(
        float((old.prod(-1) * scores).sum()), rel=1e-5
    )


def test_gap_metrics_average_to_the_divergences_of_the_distributions() -> None:
    # Ten draws in the proportions of rollout: 2, 3 and 5 times each token.
    draws = torch.tensor([0] * 2 + [1] * 3 + [2] * 5)
    mask = torch.ones(10, 1, dtype=torch.bool)
    found = correction(
        OLD.log()[draws][:, None],
        ROLLOUT.log()[draws][:, None],
        mask,
        CorrectionConfig(upper=UNBOUNDED),
        totals=totals_of(mask),
        mean_weight=None,
    ).metrics
    divergence = float((ROLLOUT * (ROLLOUT / OLD).log()).sum())
    assert float(found["correction_kl_k1"]) == pytest.approx(divergence, rel=1e-5)
    assert float(found["correction_kl_k3"]) == pytest.approx(divergence, rel=1e-5)
    assert float(found["correction_chi2_token"]) == pytest.approx(float((OLD**2 / ROLLOUT).sum()) - 1, rel=1e-5)
    assert float(found["correction_weight_mean"]) == pytest.approx(1.0, rel=1e-6)


def test_under_top_p_the_weights_are_short_by_the_mass_that_was_cut() -> None:
    # The reason for the refusal. Engine and trainer agree, but the engine kept the first two tokens: mass 0.8.
    kept_mass = float(OLD[:2].sum())
    old, rollout = OLD[:2].log()[:, None], (OLD[:2] / kept_mass).log()[:, None]
    mask = torch.ones(2, 1, dtype=torch.bool)
    found = correction(old, rollout, mask, CorrectionConfig(), totals=totals_of(mask), mean_weight=None)
    torch.testing.assert_close(found.weights, torch.full((2, 1), kept_mass), rtol=1e-6, atol=0)


# ---- identities


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_equal_log_probs_give_weights_of_exactly_one_and_reject_nothing(config: CorrectionConfig) -> None:
    log_probs, mask = random_rows(0)
    mean_weight = weight_sums(log_probs, log_probs, mask, config).mean
    found = correction(log_probs, log_probs, mask, config, totals=totals_of(mask), mean_weight=mean_weight)
    assert torch.equal(found.weights, mask.float())
    assert torch.equal(found.kept, mask)
    metrics = finish(floats(found.metrics))
    ones = {"correction_weight_mean", "correction_ess_frac", "correction_kept_frac"}
    assert metrics == {name: pytest.approx(1.0 if name in ones else 0.0, abs=1e-6) for name in metrics}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), index=st.integers(0, len(CONFIGS) - 1), cuts=st.sets(st.integers(1, 5), max_size=3))
def test_micro_batches_do_not_matter(seed: int, index: int, cuts: set[int]) -> None:
    config, (log_ratio, mask) = CONFIGS[index], random_rows(seed)
    zeros, totals = torch.zeros_like(log_ratio), totals_of(mask)
    mean_weight = weight_sums(log_ratio, zeros, mask, config).mean
    whole = correction(log_ratio, zeros, mask, config, totals=totals, mean_weight=mean_weight)
    parts = [
        correction(log_ratio[a:b], zeros[a:b], mask[a:b], config, totals=totals, mean_weight=mean_weight)
        for a, b in itertools.pairwise([0, *sorted(cuts), 6])
    ]
    assert torch.equal(torch.cat([part.weights for part in parts]), whole.weights)
    assert torch.equal(torch.cat([part.kept for part in parts]), whole.kept)
    assert all(part.metrics.keys() == whole.metrics.keys() for part in parts)
    summed = {name: sum(float(part.metrics[name]) for part in parts) for name in whole.metrics}
    assert finish(summed) == {
        name: pytest.approx(value, rel=1e-5, abs=1e-6) for name, value in finish(floats(whole.metrics)).items()
    }


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_padding_does_not_matter_even_where_it_is_nan(config: CorrectionConfig) -> None:
    log_ratio, mask = random_rows(7)
    narrow = corrected(log_ratio, mask, config)
    wide_mask = torch.cat([mask, torch.zeros(6, 3, dtype=torch.bool)], -1)
    wide_ratio = torch.where(wide_mask, torch.cat([log_ratio, torch.zeros(6, 3)], -1), torch.nan)
    wide = corrected(wide_ratio, wide_mask, config)
    assert torch.equal(wide.weights[:, :7], narrow.weights) and not wide.weights[:, 7:].any()
    assert torch.equal(wide.kept[:, :7], narrow.kept) and not wide.kept[:, 7:].any()
    assert floats(wide.metrics) == {
        name: pytest.approx(value, rel=1e-5, abs=1e-7) for name, value in floats(narrow.metrics).items()
    }


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_extremes_stay_finite(config: CorrectionConfig) -> None:
    log_ratio = torch.tensor([[80.0, -80.0], [80.0, 80.0], [-80.0, -80.0]])
    found = corrected(log_ratio, torch.ones(3, 2, dtype=torch.bool), config)
    assert found.weights.isfinite().all()
    assert all(value.isfinite() for value in found.metrics.values())


def test_a_token_that_the_trainer_holds_for_impossible_weighs_nothing() -> None:
    log_ratio, mask = torch.tensor([[-torch.inf, 0.0]]), torch.ones(1, 2, dtype=torch.bool)
    assert corrected(log_ratio, mask, CorrectionConfig()).weights.tolist() == [[pytest.approx(math.exp(-20)), 1.0]]
    assert not corrected(log_ratio, mask, CorrectionConfig(veto_threshold=1e-6)).kept.any()


def test_ratios_are_clamped_to_twenty_nats() -> None:
    log_ratio, mask = torch.tensor([[80.0, -80.0]]), torch.ones(1, 2, dtype=torch.bool)
    weights = corrected(log_ratio, mask, CorrectionConfig(upper=UNBOUNDED)).weights
    torch.testing.assert_close(weights, torch.tensor([[math.exp(20), math.exp(-20)]]), rtol=1e-5, atol=0)
    # The sum over a sequence is not of clamped tokens: +80 and -80 cancel.
    assert corrected(log_ratio, mask, CorrectionConfig(level="sequence")).weights.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 4)])
@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_rows_without_a_token_give_zeros(config: CorrectionConfig, shape: tuple[int, int]) -> None:
    found = corrected(torch.full(shape, torch.nan), torch.zeros(shape, dtype=torch.bool), config)
    assert found.weights.shape == found.kept.shape == shape
    assert not found.weights.any() and not found.kept.any()
    assert not any(finish(floats(found.metrics)).values())


@pytest.mark.parametrize("config", [config for config in CONFIGS if config.level != "off"], ids=named)
def test_nan_inside_the_mask_is_not_swallowed(config: CorrectionConfig) -> None:
    log_ratio = torch.tensor([[torch.nan, 0.0], [0.0, 0.0]])
    assert corrected(log_ratio, torch.ones(2, 2, dtype=torch.bool), config, mean_weight=1.0).weights.isnan().any()


def test_weights_have_no_gradient() -> None:
    old = torch.zeros(2, 3, requires_grad=True)
    mask = torch.ones(2, 3, dtype=torch.bool)
    found = correction(old, torch.ones(2, 3), mask, CorrectionConfig(), totals=totals_of(mask), mean_weight=None)
    assert not found.weights.requires_grad
    assert not any(value.requires_grad for value in found.metrics.values())


def test_row_order_does_not_matter() -> None:
    log_ratio, mask = random_rows(9)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    config = CorrectionConfig(rejection="geometric", veto_threshold=0.3)
    assert torch.equal(
        corrected(log_ratio[order], mask[order], config).weights, corrected(log_ratio, mask, config).weights[order]
    )


# ---- configuration


def test_correction_is_left_off_below_the_gap_or_where_nothing_is_asked() -> None:
    assert is_needed(CorrectionConfig(), mean_gap=1e-2)
    assert is_needed(CorrectionConfig(), mean_gap=1e-4)
    assert not is_needed(CorrectionConfig(), mean_gap=1e-6)
    assert not is_needed(CorrectionConfig(level="off"), mean_gap=1.0)
    assert is_on(CorrectionConfig(level="off", rejection="token"))
    assert is_on(CorrectionConfig(level="off", veto_threshold=1e-4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("level", "word"),
        ("mode", "icepop"),
        ("rejection", "geo"),
        ("upper", 0.9),
        ("lower", 1.1),
        ("rejection_upper", 0.5),
        ("rejection_lower", -0.1),
        ("veto_threshold", 1.0),
        ("min_gap", -1.0),
    ],
)
def test_a_value_that_cannot_work_is_refused(name: str, value: object) -> None:
    config = Config()
    setattr(config.algorithm.rollout_correction, name, value)
    problem = wrong_values(config)[f"algorithm.rollout_correction.{name}"]
    assert problem.startswith(f"algorithm.rollout_correction.{name} is {value!r}, but must be ")
