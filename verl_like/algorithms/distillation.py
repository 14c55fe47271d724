"""Distillation: terms by which a policy learns from a teacher on its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from verl_like.algorithms.aggregate import token_share
from verl_like.algorithms.policy_losses.base import aggregated_tokens
from verl_like.algorithms.types import LossInputs, LossOutput
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

    def with_advantages(self, inputs: LossInputs) -> tuple[LossInputs, dict[str, Tensor]]:
        """Return the inputs of the policy loss, and metrics."""
        if self.kind != "pg":
            return inputs, {}
        assert inputs.ref_log_probs is not None, "algorithm.distill_loss=pg, but the batch has no ref_log_probs"
        gap = inputs.ref_log_probs - inputs.old_log_probs
        shaped = replace(inputs, advantages=inputs.advantages + self.coef * gap)
        return shaped, {"distill_loss": token_share(-gap, inputs.response_mask, inputs.totals)}

    def term(self, outputs: Mapping[str, Tensor], inputs: LossInputs, aggregation: str) -> LossOutput | None:
        """Return the term of the loss in addition to the policy loss, if there is one, and metrics."""
        if self.kind != "jsd":
            return None
        assert "divergence" in outputs, "algorithm.distill_loss=jsd, but the forward pass had no teacher"
        divergence = aggregated_tokens(outputs["divergence"], inputs, aggregation)
        found = token_share(outputs["divergence"].detach(), inputs.response_mask, inputs.totals)
        return LossOutput(loss=self.coef * divergence, metrics={"distill_loss": found})
