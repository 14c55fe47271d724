"""Tokens that the policy loss leaves out: which ones, and what remains of the loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.entropy import is_high_entropy
from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.config.schema import ActorConfig, CorrectionConfig

NAN = float("nan")
MASK = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
TOTALS = BatchTotals(num_tokens=6, num_sequences=3, max_response_tokens=3)
LOG_PROBS = torch.tensor([[-1.0, -2.0, NAN], [-1.0, -1.0, -1.0], [-0.5, NAN, NAN], [NAN] * 3])
COLUMNS = {
    "response_mask": MASK,
    "old_log_probs": LOG_PROBS,
    "advantages": torch.tensor([[-1.0, -1.0, NAN], [-2.0, 3.0, -2.0], [1.0, NAN, NAN], [NAN] * 3]),
    # Mean gaps of the rows: (0.5 + 0.1) / 2, (0.4 + 0.4 + 0.1) / 3, 2.
    "rollout_log_probs": torch.tensor([[-0.5, -1.9, NAN], [-0.6, -0.6, -0.9], [1.5, NAN, NAN], [NAN] * 3]),
}


def run(
    config: ActorConfig, correction: CorrectionConfig | None = None, **columns: Tensor
) -> tuple[LossOutput, Tensor]:
    """Return the loss, and its gradient with respect to the log-probs."""
    log_probs = LOG_PROBS.clone().requires_grad_()
    output = ActorLoss(config, correction)({"log_probs": log_probs}, {**COLUMNS, **columns}, TOTALS)
    torch.autograd.backward(output.loss)
    assert log_probs.grad is not None
    return output, log_probs.grad


# ---- off-policy sequences


def test_a_row_that_the_policy_has_left_learns_from_no_negative_advantage() -> None:
    output, gradient = run(ActorConfig(off_policy_mask_threshold=0.301, loss_aggregation="token-sum"))
    # At ratio 1 the gradient is minus the advantage. Only the third row is above, and its advantage is positive.
    assert gradient.tolist() == [[1.0, 1.0, 0.0], [2.0, -3.0, 2.0], [-1.0, 0.0, 0.0], [0.0] * 3]
    assert float(output.metrics["actor/off_policy_masked_frac"]) == 0.0
    output, gradient = run(ActorConfig(off_policy_mask_threshold=0.299, loss_aggregation="token-sum"))
    assert gradient.tolist() == [[0.0] * 3, [0.0, -3.0, 0.0], [-1.0, 0.0, 0.0], [0.0] * 3]
    assert float(output.metrics["actor/off_policy_masked_frac"]) == pytest.approx(4 / 6)


def test_a_token_that_is_left_out_keeps_its_share_of_the_denominator() -> None:
    _, gradient = run(ActorConfig(off_policy_mask_threshold=0.299))
    assert gradient[1].tolist() == pytest.approx([0.0, -3.0 / 6, 0.0])
    _, gradient = run(ActorConfig(off_policy_mask_threshold=0.299, loss_aggregation="seq-mean-token-mean"))
    assert gradient[1].tolist() == pytest.approx([0.0, -3.0 / 3 / 3, 0.0])


def test_the_threshold_of_zero_masks_nothing() -> None:
    output, gradient = run(ActorConfig())
    assert "actor/off_policy_masked_frac" not in output.metrics
    without_engine = {name: column for name, column in COLUMNS.items() if name != "rollout_log_probs"}
    log_probs = LOG_PROBS.clone().requires_grad_()
    torch.autograd.backward(ActorLoss(ActorConfig())({"log_probs": log_probs}, without_engine, TOTALS).loss)
    assert log_probs.grad is not None and torch.equal(gradient, log_probs.grad)


def test_masks_and_weights_of_the_rollout_correction_multiply() -> None:
    correction = CorrectionConfig(upper=10.0)
    _, weighed = run(ActorConfig(loss_aggregation="token-sum"), correction)
    _, both = run(ActorConfig(loss_aggregation="token-sum", off_policy_mask_threshold=0.299), correction)
    assert weighed[0, 0] != 1.0
    assert torch.equal(both, torch.where(torch.tensor([[1, 1, 0], [1, 0, 1], [0] * 3, [0] * 3]).bool(), 0.0, weighed))


def test_an_off_policy_mask_without_the_engines_log_probs_is_named() -> None:
    columns = {name: column for name, column in COLUMNS.items() if name != "rollout_log_probs"}
    with pytest.raises(AssertionError, match=r"off_policy_mask_threshold > 0, but the batch has no rollout_log_probs"):
        ActorLoss(ActorConfig(off_policy_mask_threshold=0.1))({"log_probs": LOG_PROBS}, columns, TOTALS)


# ---- tokens of high entropy


def test_tokens_of_low_entropy_are_left_out_of_the_policy_loss_but_not_of_the_kl() -> None:
    chosen = torch.tensor([[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]]).bool()
    output, gradient = run(ActorConfig(loss_aggregation="token-sum"), is_high_entropy=chosen)
    assert gradient.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [-1.0, 0.0, 0.0], [0.0] * 3]
    assert float(output.metrics["actor/entropy_masked_frac"]) == pytest.approx(3 / 6)
    ref = torch.where(MASK, LOG_PROBS - 0.1, NAN)
    config = ActorConfig(loss_aggregation="token-sum", kl_loss_coef=1.0, kl_loss_type="k1")
    _, gradient = run(config, is_high_entropy=chosen, ref_log_probs=ref)
    assert gradient.tolist() == [[2.0, 1.0, 0.0], [1.0, 1.0, 3.0], [0.0, 0.0, 0.0], [0.0] * 3]


def test_the_share_of_highest_entropy_by_hand() -> None:
    # Of 11 tokens a share of 0.2 leaves those with at most 0.2 * 10 above them.
    entropies = torch.tensor([5.0, 1.0, 9.0, 3.0, 8.0, 0.0, 7.0, 2.0, 6.0, 4.0, 0.5])
    assert entropies[is_high_entropy(entropies, 0.2)].tolist() == [9.0, 8.0, 7.0]
    assert entropies[is_high_entropy(entropies, 0.19)].tolist() == [9.0, 8.0]
    assert is_high_entropy(entropies, 1.0).all()
    assert entropies[is_high_entropy(entropies, 1e-6)].tolist() == [9.0]


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("num_tokens", [1, 2, 10, 101, 1000])
def test_the_share_of_highest_entropy_is_above_the_quantile(share: float, num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(num_tokens)
    entropies = torch.rand(num_tokens, generator=generator, dtype=torch.float64)
    threshold = torch.quantile(entropies, 1 - share)
    assert torch.equal(is_high_entropy(entropies, share), entropies >= threshold - 1e-12)


def test_equal_entropies_are_chosen_together() -> None:
    entropies = torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0])
    assert is_high_entropy(entropies, 0.1).tolist() == [False, True, True, True, False]
    assert is_high_entropy(torch.zeros(4), 0.1).all()


def test_an_entropy_that_is_no_number_is_refused() -> None:
    with pytest.raises(AssertionError, match="must be finite"):
        is_high_entropy(torch.tensor([1.0, NAN]), 0.5)
