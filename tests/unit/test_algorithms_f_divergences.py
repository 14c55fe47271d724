"""Scores of f-divergences: values by hand, and their use in losses of pairs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tests.unit.test_algorithms_preferences import BETA, CHOSEN, REJECTED, logs, one_pair
from verl_like.algorithms.f_divergences import alpha_divergence, score_of
from verl_like.algorithms.pair_losses import pair_losses
from verl_like.config.options import options
from verl_like.config.schema import DpoConfig

BY_HAND = {
    "reverse_kl": lambda r: math.log(r),
    "forward_kl": lambda r: 1 - 1 / r,
    "js_divergence": lambda r: math.log(2 * r / (r + 1)),
    "alpha_divergence": lambda r: (r ** (0.3 - 1) - 1) / (0.3 - 1),
}


@pytest.mark.parametrize("name", options()["dpo.f_divergence"].choices)
def test_a_divergence_has_the_scores_and_the_loss_of_its_equation(name: str) -> None:
    config = DpoConfig(f_divergence=name, f_alpha=0.3, beta=BETA)
    score, expected = score_of(config), [BY_HAND[name](math.exp(h)) for h in (CHOSEN, REJECTED)]
    found = score(torch.tensor([CHOSEN, REJECTED], dtype=torch.float64))
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    loss = float(pair_losses(replace(one_pair(), score=score), config))
    assert loss == pytest.approx(-logs(BETA * (expected[0] - expected[1])), rel=1e-12)


def test_alpha_1_is_the_log_ratio_and_near_it_the_limit() -> None:
    ratio = torch.tensor([1.7, -0.4], dtype=torch.float64)
    assert torch.equal(alpha_divergence(ratio, 1.0), ratio)
    torch.testing.assert_close(alpha_divergence(ratio, 1.0001), ratio, rtol=1e-3, atol=0.0)


def test_an_extreme_ratio_gives_finite_scores_of_alpha() -> None:
    assert bool(torch.isfinite(alpha_divergence(torch.tensor([500.0, -500.0]), 2.0)).all())
