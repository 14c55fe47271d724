"""Losses of pairs: values by hand in float64, and mini-batches that are cut into passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.pair_losses import PAIR_LOSSES, PairInputs, bradley_terry, pair_losses
from verl_like.algorithms.preference_loss import DpoLoss
from verl_like.algorithms.types import BatchTotals
from verl_like.config.compose import compose
from verl_like.config.schema import DpoConfig
from verl_like.config.schema.preference import PAIR_LOSSES as NAMES

BETA, SHARE = 0.3, 0.1
# Log-ratios of a chosen and of a rejected response, and their tokens.
CHOSEN, REJECTED, CHOSEN_TOKENS, REJECTED_TOKENS = 1.7, -0.4, 4, 2


def s(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def logs(x: float) -> float:
    return -math.log(1 + math.exp(-x))


D, D_MEAN = CHOSEN - REJECTED, CHOSEN / CHOSEN_TOKENS - REJECTED / REJECTED_TOKENS
BY_HAND: dict[str, Callable[[], float]] = {
    "sigmoid": lambda: -logs(BETA * D),
    "cdpo": lambda: -(1 - SHARE) * logs(BETA * D) - SHARE * logs(-BETA * D),
    "robust": lambda: (-(1 - SHARE) * logs(BETA * D) + SHARE * logs(-BETA * D)) / (1 - 2 * SHARE),
    "hinge": lambda: 1 - BETA * D,
    "ipo": lambda: (D_MEAN - 1 / (2 * BETA)) ** 2,
    "sigmoid_norm": lambda: -logs(BETA * D_MEAN),
    "apo_zero": lambda: 1 - s(BETA * CHOSEN) + s(BETA * REJECTED),
    "apo_down": lambda: s(BETA * CHOSEN) + 1 - s(BETA * D),
    "bco_pair": lambda: -logs(BETA * CHOSEN) - logs(-BETA * REJECTED),
    "nca_pair": lambda: -logs(BETA * CHOSEN) - (logs(-BETA * CHOSEN) + logs(-BETA * REJECTED)) / 2,
    "exo_pair": lambda: (
        s(BETA * D) * math.log(s(BETA * D) / (1 - SHARE)) + s(-BETA * D) * math.log(s(-BETA * D) / SHARE)
    ),
    "sppo_hard": lambda: (CHOSEN - 0.5 / BETA) ** 2 + (REJECTED + 0.5 / BETA) ** 2,
    "sft": lambda: 5.0 * 0.25,
}


def one_pair(chosen: float = CHOSEN, rejected: float = REJECTED) -> PairInputs:
    """A pair whose chosen response has the log-prob -5."""
    return PairInputs(
        chosen=torch.tensor([-5.0], dtype=torch.float64),
        rejected=torch.tensor([-6.0], dtype=torch.float64),
        ref_chosen=torch.tensor([-5.0 - chosen], dtype=torch.float64),
        ref_rejected=torch.tensor([-6.0 - rejected], dtype=torch.float64),
        chosen_tokens=torch.tensor([CHOSEN_TOKENS]),
        rejected_tokens=torch.tensor([REJECTED_TOKENS]),
        sft_scale=0.25,
    )


@pytest.mark.parametrize("name", sorted(PAIR_LOSSES))
def test_a_pair_has_the_value_of_the_equation(name: str) -> None:
    config = DpoConfig(losses={name: 1.0}, beta=BETA, label_smoothing=SHARE)
    assert pair_losses(one_pair(), config).item() == pytest.approx(BY_HAND[name](), rel=1e-12)


def test_the_options_name_the_losses_that_exist() -> None:
    assert tuple(PAIR_LOSSES) == NAMES


@pytest.mark.parametrize("losses", ["{dpo: 1}", "{sigmoid: 0}", "{sigmoid: -1, sft: 1}"])
def test_other_losses_are_refused(losses: str) -> None:
    expected = r"dpo\.losses is .*must be some of sigmoid, cdpo, .*\{sigmoid: 0\.8, sft: 0\.2\}"
    with pytest.raises(ValueError, match=expected):
        compose(None, [f"dpo.losses={losses}"])


def test_a_named_loss_is_the_only_one() -> None:
    assert compose(None, ["dpo.losses={ipo: 1}"]).config.dpo.weights == {"ipo": 1.0}
    assert compose(None, []).config.dpo.weights == {"sigmoid": 1.0}


def test_losses_are_summed_with_their_weights() -> None:
    config = DpoConfig(losses={"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.5}, beta=BETA)
    expected = 0.8 * BY_HAND["sigmoid"]() + 0.2 * BY_HAND["bco_pair"]() + 1.5 * BY_HAND["sft"]()
    assert pair_losses(one_pair(), config).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", sorted(set(PAIR_LOSSES) - {"sppo_hard", "ipo", "apo_down"}))
def test_a_step_raises_the_chosen_response_above_the_rejected_one(name: str) -> None:
    pairs = one_pair(0.0, 0.0)
    chosen, rejected = pairs.chosen.requires_grad_(), pairs.rejected.requires_grad_()
    loss = pair_losses(pairs, DpoConfig(losses={name: 1.0}, beta=BETA, label_smoothing=SHARE))
    of_chosen, of_rejected = torch.autograd.grad(loss.sum(), [chosen, rejected], allow_unused=True)
    assert of_chosen is not None and of_chosen < 0
    assert of_rejected is None or of_rejected > 0


def test_extreme_log_ratios_give_finite_gradients() -> None:
    for name in PAIR_LOSSES:
        for size in (1e4, -1e4):
            pairs = one_pair(size, -size)
            chosen = pairs.chosen.requires_grad_()
            loss = pair_losses(pairs, DpoConfig(losses={name: 1.0}, beta=BETA, label_smoothing=SHARE))
            [gradient] = torch.autograd.grad(loss.sum(), [chosen])
            assert loss.isfinite().all() and gradient.isfinite().all(), name


def test_the_loss_of_scores_is_that_of_bradley_and_terry() -> None:
    chosen, rejected, margin = (torch.tensor([value], dtype=torch.float64) for value in (1.2, 0.5, 0.3))
    found = bradley_terry(chosen, rejected, margin, center=0.01).item()
    assert found == pytest.approx(-logs(1.2 - 0.5 - 0.3) + 0.01 * (1.2 + 0.5) ** 2, rel=1e-12)


# --- A mini-batch in passes


def columns(rows: list[int], log_probs: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs and columns of these of four rows, two pairs whose rows are mixed; the rows have 3, 1, 2 and 3 tokens."""
    lengths = torch.tensor([3, 1, 2, 3])
    mask = torch.arange(3) < lengths[:, None]
    given = {
        "response_mask": mask,
        "pair": torch.tensor([7, 2, 7, 2]),
        "is_chosen": torch.tensor([False, True, True, False]),
        "ref_log_prob": torch.tensor([-2.0, -1.5, -3.0, -2.5], dtype=torch.float64),
    }
    padded = torch.where(mask, log_probs, torch.nan)
    return {"log_probs": padded[rows]}, {name: of[rows] for name, of in given.items()}


def test_passes_of_whole_pairs_add_up_to_the_mini_batch() -> None:
    config = DpoConfig(losses={"sigmoid": 1.0, "ipo": 0.5, "sft": 0.3}, beta=BETA)
    totals = BatchTotals(num_tokens=9.0, num_sequences=4.0, max_response_tokens=3)
    log_probs = -torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loss = DpoLoss(config, chosen_tokens=3.0)

    def differentiated(passes: list[list[int]]) -> tuple[dict[str, float], Tensor]:
        leaf = log_probs.clone().requires_grad_()
        shares = [loss(*columns(rows, leaf), totals) for rows in passes]
        [gradient] = torch.autograd.grad(torch.stack([share.loss for share in shares]).sum(), [leaf])
        return {name: sum(float(share.metrics[name]) for share in shares) for name in shares[0].metrics}, gradient

    whole, gradient = differentiated([[0, 1, 2, 3]])
    for passes in ([[2, 0], [1, 3]], [[3, 1, 0, 2]]):
        metrics, other = differentiated(passes)
        assert metrics == pytest.approx(whole, rel=1e-12)
        torch.testing.assert_close(other, gradient)
    sums = torch.where(torch.arange(3) < torch.tensor([3, 1, 2, 3])[:, None], log_probs, 0.0).sum(-1)
    ratios = sums - torch.tensor([-2.0, -1.5, -3.0, -2.5])
    assert whole["dpo/reward_chosen"] == pytest.approx(BETA * float(ratios[[2, 1]].mean()))
    assert whole["dpo/accuracy"] == float((ratios[[2, 1]] > ratios[[0, 3]]).double().mean())
    tokens = -(sums[1] + sums[2]) / 3
    without = DpoLoss(DpoConfig(losses={"sigmoid": 1.0, "ipo": 0.5}, beta=BETA), chosen_tokens=3.0)
    rest = without(*columns([0, 1, 2, 3], log_probs), totals).metrics["dpo/loss"]
    assert whole["dpo/loss"] == pytest.approx(float(rest) + 0.3 * float(tokens)), "the mean over chosen tokens"
