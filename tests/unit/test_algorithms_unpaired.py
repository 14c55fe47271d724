"""Losses of single responses: values by hand in float64, and mini-batches that are cut into passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.preference_loss import UnpairedLoss
from verl_like.algorithms.types import BatchTotals
from verl_like.algorithms.unpaired_losses import UNPAIRED_LOSSES, UnpairedInputs, unpaired_losses
from verl_like.config.schema import DpoConfig
from verl_like.config.schema.preference import UNPAIRED_LOSSES as NAMES

BETA, KL, DESIRABLE, UNDESIRABLE = 0.3, 0.8, 1.2, 0.7
RATIOS = (1.7, -0.4)  # of a desirable and of an undesirable response


def s(x: float) -> float:
    return 1 / (1 + math.exp(-x))


BY_HAND: dict[str, Callable[[], list[float]]] = {
    "kto": lambda: [1 - s(BETA * (RATIOS[0] - KL)), 1 - s(BETA * (KL - RATIOS[1]))],
    "apo_zero_unpaired": lambda: [1 - s(BETA * RATIOS[0]), s(BETA * RATIOS[1])],
}


def two_rows(ratios: tuple[float, float] = RATIOS) -> UnpairedInputs:
    log_prob = torch.tensor([-5.0, -6.0], dtype=torch.float64)
    return UnpairedInputs(
        log_prob=log_prob,
        reference=log_prob - torch.tensor(ratios, dtype=torch.float64),
        is_chosen=torch.tensor([True, False]),
        kl=KL,
    )


def config(**losses: float) -> DpoConfig:
    return DpoConfig(losses=losses, beta=BETA, desirable_weight=DESIRABLE, undesirable_weight=UNDESIRABLE)


@pytest.mark.parametrize("name", sorted(UNPAIRED_LOSSES))
def test_a_response_has_the_value_of_the_equation(name: str) -> None:
    desirable, undesirable = BY_HAND[name]()
    expected = [DESIRABLE * desirable, UNDESIRABLE * undesirable]
    assert unpaired_losses(two_rows(), config(**{name: 1.0})).tolist() == pytest.approx(expected, rel=1e-12)


def test_losses_are_summed_with_their_weights() -> None:
    expected = [
        weight * (0.8 * kto + 0.5 * apo)
        for weight, kto, apo in zip(
            (DESIRABLE, UNDESIRABLE), BY_HAND["kto"](), BY_HAND["apo_zero_unpaired"](), strict=True
        )
    ]
    found = unpaired_losses(two_rows(), config(kto=0.8, apo_zero_unpaired=0.5))
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_the_options_name_the_losses_that_exist() -> None:
    assert tuple(UNPAIRED_LOSSES) == NAMES


@pytest.mark.parametrize("name", sorted(UNPAIRED_LOSSES))
def test_a_step_raises_a_desirable_response_and_lowers_an_undesirable_one(name: str) -> None:
    gradient = differentiated(name, RATIOS)
    assert gradient[0] < 0 < gradient[1]


@pytest.mark.parametrize("name", sorted(UNPAIRED_LOSSES))
def test_extreme_log_ratios_give_finite_gradients(name: str) -> None:
    for size in (1e4, -1e4):
        assert differentiated(name, (size, -size)).isfinite().all()


def differentiated(name: str, ratios: tuple[float, float]) -> Tensor:
    """Return the gradient with respect to the log-probs."""
    rows = two_rows(ratios)
    log_prob = rows.log_prob.requires_grad_()
    [gradient] = torch.autograd.grad(unpaired_losses(rows, config(**{name: 1.0})).sum(), [log_prob])
    return gradient


# --- A mini-batch in passes

LENGTHS = torch.tensor([3, 1, 2, 3])
MASK = torch.arange(3) < LENGTHS[:, None]
REFERENCE = torch.tensor([-2.0, -1.5, -3.0, -2.5], dtype=torch.float64)
LABELS = torch.tensor([False, True, True, True])
TOTALS = BatchTotals(num_tokens=9.0, num_sequences=4.0, max_response_tokens=3)


def in_passes(passes: list[list[int]], log_probs: Tensor, labels: Tensor) -> tuple[dict[str, float], Tensor]:
    """Return the metrics and the gradient of a mini-batch that is cut into these passes."""
    leaf = log_probs.clone().requires_grad_()
    loss = UnpairedLoss(config(kto=1.0, apo_zero_unpaired=0.3), kl=KL, num_chosen=int(labels.sum()))
    shares = []
    for rows in passes:
        columns = {"response_mask": MASK[rows], "is_chosen": labels[rows], "ref_log_prob": REFERENCE[rows]}
        shares.append(loss({"log_probs": torch.where(MASK, leaf, torch.nan)[rows]}, columns, TOTALS))
    [gradient] = torch.autograd.grad(torch.stack([share.loss for share in shares]).sum(), [leaf])
    return {name: sum(float(share.metrics[name]) for share in shares) for name in shares[0].metrics}, gradient


def test_passes_add_up_to_the_mini_batch() -> None:
    log_probs = -torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole, gradient = in_passes([[0, 1, 2, 3]], log_probs, LABELS)
    for passes in ([[1, 2], [0, 3]], [[3], [2], [1], [0]]):
        metrics, other = in_passes(passes, log_probs, LABELS)
        assert metrics == pytest.approx(whole, rel=1e-12)
        torch.testing.assert_close(other, gradient)
    sums = torch.where(MASK, log_probs, 0.0).sum(-1)
    assert whole["dpo/reward_chosen"] == pytest.approx(BETA * float((sums - REFERENCE)[1:].mean()))
    assert whole["dpo/reward_rejected"] == pytest.approx(BETA * float((sums - REFERENCE)[0]))
    assert whole["dpo/log_prob_chosen"] == pytest.approx(float(sums[1:].mean()))
    assert whole["dpo/log_prob_rejected"] == pytest.approx(float(sums[0]))


def test_a_label_that_the_mini_batch_lacks_has_no_metrics() -> None:
    log_probs = -torch.ones(4, 3, dtype=torch.float64)
    metrics, _ = in_passes([[0, 1], [2, 3]], log_probs, torch.ones(4, dtype=torch.bool))
    assert sorted(metrics) == ["dpo/log_prob_chosen", "dpo/loss", "dpo/reward_chosen"]
