"""Distillation: terms by which a policy learns from a teacher on its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from verl_like.algorithms.aggregate import token_share
from verl_like.algorithms.policy_losses.base import aggregated_tokens
from verl_like.algorithms.types import LossInputs
from verl_like.config.schema import AlgorithmConfig


@dataclass(frozen=True, slots=True)
class Distillation:
    """The term of ``algorithm.distill_coef`` in the actor's loss.

    - ``pg``: each token's advantage gets coef (log T - log S_old), which is minus a sample of the reverse KL of the
      policy that generated (on-policy distillation, as in tinker). It passes through the policy loss.
    - ``jsd``: the loss gets coef times the divergence over the whole vocabulary (GKD, 2306.13649).
    """

    coef: float
    kind: str

    @classmethod
    def of(cls, config: AlgorithmConfig) -> Distillation | None:
        """Return the term of a configuration, if it has one."""
        return cls(config.distill_coef, config.distill_loss) if config.distillation else None

    def applied(
        self, inputs: LossInputs, outputs: Mapping[str, Tensor], aggregation: str
    ) -> tuple[LossInputs, Tensor | None, Tensor]:
        """Return the inputs of the policy loss, the term in addition to it if there is one, and the divergence per
        token as a metric.
        """
        if self.kind == "pg":
            assert inputs.ref_log_probs is not None, "algorithm.distill_loss=pg, but the batch has no ref_log_probs"
            divergence, term = inputs.old_log_probs - inputs.ref_log_probs, None
            inputs = replace(inputs, advantages=inputs.advantages - self.coef * divergence)
        else:
            assert "divergence" in outputs, "algorithm.distill_loss=jsd, but the forward pass had no teacher"
            divergence = outputs["divergence"]
            term = self.coef * aggregated_tokens(divergence, inputs, aggregation)
        return inputs, term, token_share(divergence.detach(), inputs.response_mask, inputs.totals)
