"""The objective of training on single responses with a label, desirable or undesirable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from verl_like.algorithms.preference_loss import UnpairedLoss
from verl_like.algorithms.unpaired_losses import UnpairedInputs, means_by_label, unpaired_losses
from verl_like.config.schema import DpoConfig
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.protocol import PAIR, Array, DataProto
from verl_like.training.mismatched import MismatchedRows
from verl_like.training.objectives import PreferenceObjective
from verl_like.training.reference import Reference
from verl_like.training.row_trainer import VAL_LOSS, Reports
from verl_like.training.step_metrics import Metrics
from verl_like.workers.groups import ActorGroup


class UnpairedObjective(PreferenceObjective):
    """The losses of single responses, ``dpo.losses`` (``verl-like dpo``); a pair counts as one of each label."""

    val_metric = VAL_LOSS

    def __init__(self, actor: ActorGroup, config: DpoConfig, reference: Reference) -> None:
        super().__init__(actor, config, reference)
        self._mismatched = MismatchedRows(actor.response_log_probs, reference) if config.reads_kl else None

    def prepare(self, rows: DataProto, batch: RemoteBatch, mini_batches: Iterable[Array]) -> None:
        """Add the fact ``ref_log_prob``, and what the estimate of the KL reads."""
        super().prepare(rows, batch, ())
        if self._mismatched is not None:
            self._mismatched.prepare(rows, batch, mini_batches, rows_per_item=_rows_per_item(batch))

    def _kl(self, batch: RemoteBatch, *, ranks: int) -> float:
        if self._mismatched is None:
            return 0.0
        return self._mismatched.kl(batch, rows_per_item=_rows_per_item(batch), ranks=ranks)

    def update(self, batch: RemoteBatch, parts: Sequence[Array]) -> Reports:
        kl = self._kl(batch, ranks=len(parts))
        loss = UnpairedLoss(self._config, kl=kl, num_chosen=int(batch.facts["is_chosen"].sum()))
        reports = self._actor.prefer(batch, parts, loss)
        return [{**report, "dpo/kl": kl} for report in reports] if self._config.reads_kl else reports

    def validate(self, batch: RemoteBatch, parts: Sequence[Array]) -> Metrics:
        is_chosen = torch.from_numpy(batch.facts["is_chosen"])
        rows = UnpairedInputs(
            log_prob=torch.from_numpy(self._actor.response_log_probs(batch, parts)),
            reference=torch.from_numpy(batch.facts["ref_log_prob"]),
            is_chosen=is_chosen,
            kl=self._kl(batch, ranks=len(parts)),
        )
        num_chosen = int(is_chosen.sum())
        rewards = means_by_label(
            {"reward": self._config.beta * rows.ratio},
            is_chosen,
            num_chosen=num_chosen,
            num_rejected=len(is_chosen) - num_chosen,
        )
        found = {f"val/{name}": float(value) for name, value in rewards.items()}
        if len(found) == 2:
            found["val/reward_margin"] = found["val/reward_chosen"] - found["val/reward_rejected"]
        kl = {"val/kl": rows.kl} if self._config.reads_kl else {}
        return {VAL_LOSS: float(unpaired_losses(rows, self._config).mean()), **found, **kl}


def _rows_per_item(batch: RemoteBatch) -> int:
    return 2 if PAIR in batch.columns else 1
