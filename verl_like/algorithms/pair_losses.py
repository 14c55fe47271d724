"""Losses of pairs of responses, of which one is preferred: direct preference optimisation, and reward models.

With the log-ratios ``h_c`` and ``h_r`` of the chosen and of the rejected response (sums of policy minus reference
log-probs over the tokens), ``D = h_c - h_r``, ``b = dpo.beta``, ``e = dpo.label_smoothing``, and ``s`` the logistic
function. With another ``dpo.f_divergence`` the scores of ``f_divergences.py`` replace the log-ratios in ``D``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from verl_like.algorithms.f_divergences import Score, reverse_kl
from verl_like.config.schema import DpoConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PairInputs:
    """Pairs of a micro-batch.

    Args:
        chosen, rejected: [P] sum of the policy's log-probs of the response's tokens, nats.
        ref_chosen, ref_rejected: [P] the same of the reference.
        chosen_tokens, rejected_tokens: [P] number of these tokens.
        score: of log-ratios in ``delta`` and ``mean_delta``.
        sft_scale: factor by which ``-chosen`` is scaled in the loss ``sft``, so that its mean over the mini-batch's
            pairs is the mean over their chosen tokens.
    """

    chosen: Tensor
    rejected: Tensor
    ref_chosen: Tensor
    ref_rejected: Tensor
    chosen_tokens: Tensor
    rejected_tokens: Tensor
    score: Score = reverse_kl
    sft_scale: float = 1.0

    @property
    def chosen_ratio(self) -> Tensor:
        return self.chosen - self.ref_chosen

    @property
    def rejected_ratio(self) -> Tensor:
        return self.rejected - self.ref_rejected

    @property
    def delta(self) -> Tensor:
        """D, [P]."""
        return self.score(self.chosen_ratio) - self.score(self.rejected_ratio)

    @property
    def mean_delta(self) -> Tensor:
        """The difference of the scores divided by the numbers of tokens, [P]."""
        chosen, rejected = self.score(self.chosen_ratio), self.score(self.rejected_ratio)
        return chosen / self.chosen_tokens - rejected / self.rejected_tokens


PairLossFunction = Callable[[PairInputs, DpoConfig], Tensor]


def sigmoid(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """-log s(b D). Source: DPO, Rafailov et al., 2305.18290, eq. 7."""
    return -logsigmoid(config.beta * pairs.delta)


def cdpo(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """-(1 - e) log s(b D) - e log s(-b D). Source: Mitchell, "A note on DPO with noisy preferences", 2023."""
    scaled, share = config.beta * pairs.delta, config.label_smoothing
    return -(1 - share) * logsigmoid(scaled) - share * logsigmoid(-scaled)


def robust(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """(-(1 - e) log s(b D) + e log s(-b D)) / (1 - 2 e). Source: robust DPO, 2403.00409."""
    scaled, share = config.beta * pairs.delta, config.label_smoothing
    return (-(1 - share) * logsigmoid(scaled) + share * logsigmoid(-scaled)) / (1 - 2 * share)


def hinge(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """max(0, 1 - b D). Source: SLiC-HF, 2305.10425, on log-ratios."""
    return torch.relu(1 - config.beta * pairs.delta)


def ipo(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """(D' - 1 / (2 b))^2 with D' of mean log-ratios per token. Source: IPO, 2310.12036, eq. 17; per token as in TRL."""
    return (pairs.mean_delta - 1 / (2 * config.beta)).square()


def sigmoid_norm(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """-log s(b D') with D' of mean log-ratios per token. Source: TRL 1.16; SimPO, 2405.14734, normalises so."""
    return -logsigmoid(config.beta * pairs.mean_delta)


def apo_zero(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """1 - s(b h_c) + s(b h_r). Source: APO, 2408.06266, eq. 7."""
    return 1 - torch.sigmoid(config.beta * pairs.chosen_ratio) + torch.sigmoid(config.beta * pairs.rejected_ratio)


def apo_down(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """s(b h_c) + 1 - s(b D). Source: APO, 2408.06266, eq. 8."""
    return torch.sigmoid(config.beta * pairs.chosen_ratio) + 1 - torch.sigmoid(config.beta * pairs.delta)


def bco_pair(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """-log s(b h_c) - log s(-b h_r). Source: BCO, 2404.04656, without its shift, as in TRL."""
    return -logsigmoid(config.beta * pairs.chosen_ratio) - logsigmoid(-config.beta * pairs.rejected_ratio)


def nca_pair(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """-log s(b h_c) - (log s(-b h_c) + log s(-b h_r)) / 2. Source: NCA, 2402.05369."""
    chosen, rejected = config.beta * pairs.chosen_ratio, config.beta * pairs.rejected_ratio
    return -logsigmoid(chosen) - 0.5 * (logsigmoid(-chosen) + logsigmoid(-rejected))


def exo_pair(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """KL of (s(b D), s(-b D)) from (1 - e, e), which needs e > 0. Source: EXO, 2402.00856, eq. 16."""
    scaled, share = config.beta * pairs.delta, config.label_smoothing
    won = torch.sigmoid(scaled) * (logsigmoid(scaled) - math.log1p(-share))
    return won + torch.sigmoid(-scaled) * (logsigmoid(-scaled) - math.log(share))


def sppo_hard(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """(h_c - 1 / (2 b))^2 + (h_r + 1 / (2 b))^2. Source: SPPO, 2405.00675, eq. 4.7 with certain preferences."""
    half = 0.5 / config.beta
    return (pairs.chosen_ratio - half).square() + (pairs.rejected_ratio + half).square()


def sft(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """Negative log-prob of the chosen response, averaged over all chosen tokens. Source: MPO, 2411.10442."""
    del config
    return -pairs.chosen * pairs.sft_scale


PAIR_LOSSES: dict[str, PairLossFunction] = {
    function.__name__: function
    for function in (
        sigmoid,
        cdpo,
        robust,
        hinge,
        ipo,
        sigmoid_norm,
        apo_zero,
        apo_down,
        bco_pair,
        nca_pair,
        exo_pair,
        sppo_hard,
        sft,
    )
}


def pair_losses(pairs: PairInputs, config: DpoConfig) -> Tensor:
    """Return the weighted sum of the losses of each pair, [P]."""
    parts = [weight * PAIR_LOSSES[name](pairs, config) for name, weight in config.weights.items()]
    return torch.stack(parts).sum(0)


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: Tensor, *, center: float) -> Tensor:
    """Return -log s(chosen - rejected - margin) + center (chosen + rejected)^2 of each pair, [P].

    Sources: Bradley and Terry, 1952; the margin of Llama 2, 2307.09288, eq. 2; the centre of Eisenstein et al.,
    2312.09244.

    Args:
        chosen, rejected: [P] scores.
        margin: [P] by how much the chosen response should lead.
    """
    return -logsigmoid(chosen - rejected - margin) + center * (chosen + rejected).square()
