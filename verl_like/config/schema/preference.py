"""The sections ``dpo`` and ``rm``: training on pairs of responses, or on single responses with a label."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_like.config.schema.fields import non_negative, option, positive
from verl_like.config.section import Section

# Names of the losses in algorithms/pair_losses.py, which imports torch.
PAIR_LOSSES = (
    *("sigmoid", "cdpo", "robust", "hinge", "ipo", "sigmoid_norm", "apo_zero", "apo_down"),
    *("bco_pair", "nca_pair", "exo_pair", "sppo_hard", "sft"),
)
# Names of the losses in algorithms/unpaired_losses.py.
UNPAIRED_LOSSES = ("kto", "apo_zero_unpaired")
LOSSES = (*PAIR_LOSSES, *UNPAIRED_LOSSES)
READ_SMOOTHING = ("cdpo", "robust", "exo_pair")
# Names of the functions in algorithms/f_divergences.py.
F_DIVERGENCES = ("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence")
READ_DIVERGENCE = ("sigmoid", "cdpo", "robust", "hinge", "ipo", "sigmoid_norm", "exo_pair")


@dataclass(kw_only=True)
class DpoConfig(Section):
    losses: dict[str, float] = option(
        {},  # a default would stay when another loss is named: mappings are merged
        f"Losses of a pair, each with its weight: {', '.join(PAIR_LOSSES)}; or of single responses with a label: "
        f"{', '.join(UNPAIRED_LOSSES)}. Empty means {{sigmoid: 1}}.",
        check=lambda v: v.keys() <= set(LOSSES) and all(0 < weight < math.inf for weight in v.values()),
        expected=f"some of {', '.join(LOSSES)}, each with a weight above 0, such as {{sigmoid: 0.8, sft: 0.2}}",
    )
    ref_path: str = option("", "Reference model; empty means the initial weights of model.path.")
    beta: float = positive(0.1, "Strength of the KL constraint: factor of the log-ratio in rewards and losses.")
    label_smoothing: float = option(
        0.0,
        f"Assumed share of pairs whose order is wrong, read by {', '.join(READ_SMOOTHING)}.",
        check=lambda v: 0 <= v < 0.5,
        expected="a number of at least 0, below 0.5",
    )
    f_divergence: str = option(
        "reverse_kl",
        f"Divergence that keeps the policy near its reference, read by {', '.join(READ_DIVERGENCE)} (f-DPO).",
        choices=F_DIVERGENCES,
    )
    f_alpha: float = option(
        0.5,
        "Alpha of f_divergence=alpha_divergence; 1 is reverse_kl.",
        check=lambda v: -math.inf < v < math.inf,
        expected="a finite number",
    )
    desirable_weight: float = positive(
        1.0, f"Factor of the loss of a desirable response, read by {', '.join(UNPAIRED_LOSSES)}."
    )
    undesirable_weight: float = positive(
        1.0, f"Factor of the loss of an undesirable response, read by {', '.join(UNPAIRED_LOSSES)}."
    )

    @property
    def weights(self) -> dict[str, float]:
        """``losses``, or else the loss of DPO."""
        return self.losses or {"sigmoid": 1.0}

    @property
    def is_unpaired(self) -> bool:
        """Whether the losses are of single responses; ``checks/loss.py`` refuses both kinds together."""
        return not self.weights.keys().isdisjoint(UNPAIRED_LOSSES)

    @property
    def reads_kl(self) -> bool:
        """Whether a loss reads the estimate of the policy's KL from the reference."""
        return "kto" in self.weights


@dataclass(kw_only=True)
class RmConfig(Section):
    center_rewards_coefficient: float = non_negative(
        0.0, "Weight of the squared sum of a pair's scores, which keeps the mean score near 0; 0.01 is common."
    )
