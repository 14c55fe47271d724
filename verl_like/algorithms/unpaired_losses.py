"""Losses of single responses that are labelled desirable or undesirable.

With the log-ratio ``h`` of a response (sum of policy minus reference log-probs over its tokens), the KL estimate ``z``,
``b = dpo.beta``, and ``s`` the logistic function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_like.config.schema import DpoConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpairedInputs:
    """Responses of a micro-batch.

    Args:
        log_prob: [B] sum of the policy's log-probs of the response's tokens, nats.
        reference: [B] the same of the reference.
        is_chosen: [B] bool, true for a desirable response.
        kl: estimate of the policy's KL from the reference over the whole mini-batch, nats, at least 0.
    """

    log_prob: Tensor
    reference: Tensor
    is_chosen: Tensor
    kl: float = 0.0

    @property
    def ratio(self) -> Tensor:
        """h, [B] nats."""
        return self.log_prob - self.reference

    def by_label(self, desirable: float, undesirable: float) -> Tensor:
        """Return [B], one number for desirable responses and another one for undesirable ones."""
        return torch.where(
            self.is_chosen, torch.full_like(self.log_prob, desirable), torch.full_like(self.log_prob, undesirable)
        )


UnpairedLossFunction = Callable[[UnpairedInputs, DpoConfig], Tensor]


def kto(rows: UnpairedInputs, config: DpoConfig) -> Tensor:
    """1 - s(b (h - z)); of an undesirable response 1 - s(b (z - h)). Source: KTO, 2402.01306, section 4, as in TRL."""
    return 1 - torch.sigmoid(config.beta * rows.by_label(1, -1) * (rows.ratio - rows.kl))


def apo_zero_unpaired(rows: UnpairedInputs, config: DpoConfig) -> Tensor:
    """1 - s(b h); of an undesirable response s(b h). Source: APO, 2408.06266, eq. 7, of single responses as in TRL."""
    return 1 - torch.sigmoid(config.beta * rows.by_label(1, -1) * rows.ratio)


UNPAIRED_LOSSES: dict[str, UnpairedLossFunction] = {
    function.__name__: function for function in (kto, apo_zero_unpaired)
}


def unpaired_losses(rows: UnpairedInputs, config: DpoConfig) -> Tensor:
    """Return the weighted sum of the losses of each response, [B], times the weight of its label."""
    parts = [weight * UNPAIRED_LOSSES[name](rows, config) for name, weight in config.weights.items()]
    return rows.by_label(config.desirable_weight, config.undesirable_weight) * torch.stack(parts).sum(0)


def means_by_label(
    values: Mapping[str, Tensor], is_chosen: Tensor, *, num_chosen: int, num_rejected: int
) -> dict[str, Tensor]:
    """Return the sums of each value over desirable rows (``NAME_chosen``) and undesirable ones (``NAME_rejected``),
    divided by these numbers; a label without rows is left out.
    """
    return {
        f"{name}_{label}": value[rows].detach().sum() / count
        for name, value in values.items()
        for label, rows, count in (("chosen", is_chosen, num_chosen), ("rejected", ~is_chosen, num_rejected))
        if count
    }
