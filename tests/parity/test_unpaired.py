"""Compare losses of single responses with TRL 1.16's KTOTrainer: equal to 1e-5. ``make peers`` installs it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from verl_like.algorithms.preference_loss import UnpairedLoss
from verl_like.algorithms.types import BatchTotals
from verl_like.algorithms.unpaired_losses import UNPAIRED_LOSSES
from verl_like.config.schema import DpoConfig

ROWS, WIDTH, BETA, DESIRABLE, UNDESIRABLE = 7, 6, 0.2, 1.3, 0.6
METRICS = {
    "rewards/chosen": "dpo/reward_chosen",
    "rewards/rejected": "dpo/reward_rejected",
    "logps/chosen": "dpo/log_prob_chosen",
    "logps/rejected": "dpo/log_prob_rejected",
}


@pytest.fixture(scope="module")
def kto_trainer() -> Any:
    return pytest.importorskip("trl.trainer.kto_trainer", reason="trl is not installed: make peers")


def masked(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return log-probs and their mask, [B, T]."""
    mask = torch.arange(WIDTH) < torch.randint(1, WIDTH + 1, (ROWS, 1), generator=generator)
    return torch.where(mask, -2 * torch.rand(ROWS, WIDTH, generator=generator), 0.0), mask


class Batch:
    """Responses, the same prompts with other responses, the reference's sums of both, and labels.

    Args:
        shift: by how much the policy's log-probs of mismatched rows exceed the reference's in the mean, nats.
    """

    def __init__(self, seed: int, labels: list[bool], *, shift: float) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.log_probs, self.mask = masked(generator)
        self.other_log_probs, self.other_mask = masked(generator)
        self.reference = self.log_probs.sum(1) + torch.randn(ROWS, generator=generator)
        noise = torch.randn(ROWS, generator=generator)
        self.other_reference = self.other_log_probs.sum(1) - shift + noise - noise.mean()
        self.labels = torch.tensor(labels)

    @property
    def kl(self) -> float:
        return max(float((self.other_log_probs.sum(1) - self.other_reference).mean()), 0.0)


def ours(batch: Batch, name: str) -> tuple[dict[str, float], Tensor]:
    leaf = batch.log_probs.clone().requires_grad_()
    columns = {"response_mask": batch.mask, "is_chosen": batch.labels, "ref_log_prob": batch.reference}
    totals = BatchTotals(num_tokens=float(batch.mask.sum()), num_sequences=float(ROWS), max_response_tokens=WIDTH)
    config = DpoConfig(losses={name: 1.0}, beta=BETA, desirable_weight=DESIRABLE, undesirable_weight=UNDESIRABLE)
    loss = UnpairedLoss(config, kl=batch.kl, num_chosen=int(batch.labels.sum()))
    found = loss({"log_probs": leaf}, columns, totals)
    found.loss.backward()
    assert leaf.grad is not None
    return {key: float(value) for key, value in found.metrics.items()}, leaf.grad


def trls(kto_trainer: Any, batch: Batch, name: str) -> tuple[dict[str, float], Tensor]:
    """KTOTrainer's loss; its columns begin with a prompt of one token."""
    leaf = batch.log_probs.clone().requires_grad_()
    ids = torch.zeros(ROWS, WIDTH + 1, dtype=torch.long)
    prompt = torch.zeros(ROWS, 1)
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "completion_mask": torch.cat([prompt, batch.mask], dim=1).long(),
        "KL_input_ids": ids + 1,
        "KL_attention_mask": torch.ones_like(ids),
        "KL_completion_mask": torch.cat([prompt, batch.other_mask], dim=1).long(),
        "label": batch.labels,
        "ref_logps": batch.reference,
        "ref_KL_logps": batch.other_reference,
    }
    trainer = MagicMock(
        loss_type=name,
        calculate_KL=name == "kto",
        beta=BETA,
        desirable_weight=DESIRABLE,
        undesirable_weight=UNDESIRABLE,
        precompute_ref_logps=True,
        aux_loss_enabled=False,
        _tp_size=1,
        _total_train_tokens=0,
        _metrics={"train": defaultdict(list)},
    )
    trainer.accelerator.gather_for_metrics = lambda x: x
    trainer.accelerator.device = torch.device("cpu")
    trainer._compute_kl_logps = lambda model, given: kto_trainer.KTOTrainer._compute_kl_logps(trainer, model, given)
    like = torch.zeros_like(batch.log_probs)

    def model(*, input_ids: Tensor, **_: Any) -> MagicMock:
        is_mismatched = bool(input_ids[0, 0])
        return MagicMock(log_probs=batch.other_log_probs if is_mismatched else leaf, entropy=like, mean_logits=like)

    value = kto_trainer.KTOTrainer._compute_loss(trainer, model, inputs, return_outputs=False)
    value.backward()
    assert leaf.grad is not None
    found = trainer._metrics["train"]
    metrics = {own: found[key][0] for key, own in METRICS.items() if key in found}
    gradient = torch.where(batch.mask, leaf.grad, 0.0)  # elsewhere a model's log-probs are constants
    return {"dpo/loss": float(value.detach()), **metrics}, gradient


@pytest.mark.parametrize("name", sorted(UNPAIRED_LOSSES))
@pytest.mark.parametrize("labels", [[True, False, True, True, False, False, True], [True] * ROWS, [False] * ROWS])
@pytest.mark.parametrize("shift", [0.7, -0.7])
def test_losses_of_single_responses_equal_trl(kto_trainer: Any, name: str, labels: list[bool], shift: float) -> None:
    """The estimate of the KL is above 0, or clamped at 0."""
    for seed in range(5):
        batch = Batch(seed, labels, shift=shift)
        assert batch.kl == pytest.approx(max(shift, 0.0), abs=1e-5)
        metrics, gradient = ours(batch, name)
        expected, of_trl = trls(kto_trainer, batch, name)
        assert metrics == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(gradient, of_trl, rtol=1e-5, atol=1e-6)
