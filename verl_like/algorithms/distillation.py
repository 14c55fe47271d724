"""Distillation: terms by which a policy learns from a teacher on its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from verl_like.algorithms.aggregate import token_share
from verl_like.algorithms.policy_losses.base import aggregated_tokens
from verl_like.algorithms.types import LossInputs
from verl_like.config.schema import AlgorithmConfig

_LOSS, _FRAC = "distill_loss/", "distill_tokens_frac/"  # before the name of a teacher


@dataclass(frozen=True, slots=True)
class Distillation:
    """The term of ``algorithm.distill_coef`` in the actor's loss.

    - ``pg``: each token's advantage gets coef (log T - log S_old), which is minus a sample of the reverse KL of the
      policy that generated (on-policy distillation, as in tinker). It passes through the policy loss.
    - ``jsd``: the loss gets coef times the divergence over the whole vocabulary (GKD, 2306.13649).

    Args:
        teachers: names of several teachers, for metrics; empty for one.
    """

    coef: float
    kind: str
    teachers: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: AlgorithmConfig, teachers: Sequence[str] = ()) -> Distillation | None:
        """Return the term of a configuration, if it has one."""
        return cls(config.distill_coef, config.distill_loss, tuple(teachers)) if config.distillation else None

    def applied(
        self, inputs: LossInputs, outputs: Mapping[str, Tensor], aggregation: str, teachers: Tensor | None = None
    ) -> tuple[LossInputs, Tensor | None, dict[str, Tensor]]:
        """Return the inputs of the policy loss, the term in addition to it if there is one, and metrics.

        Args:
            teachers: [B] position of each row's teacher in ``teachers``, if there are several.

        Returns:
            As metrics ``distill_loss``, the divergence per token, and for each of several teachers its part of that
            sum and its share of the tokens, which :func:`finish` makes a mean.
        """
        if self.kind == "pg":
            assert inputs.ref_log_probs is not None, "algorithm.distill_loss=pg, but the batch has no ref_log_probs"
            divergence, term = inputs.old_log_probs - inputs.ref_log_probs, None
            inputs = replace(inputs, advantages=inputs.advantages - self.coef * divergence)
        else:
            assert "divergence" in outputs, "algorithm.distill_loss=jsd, but the forward pass had no teacher"
            divergence = outputs["divergence"]
            term = self.coef * aggregated_tokens(divergence, inputs, aggregation)
        metrics = {"distill_loss": token_share(divergence.detach(), inputs.response_mask, inputs.totals)}
        for number, name in enumerate(self.teachers):
            assert teachers is not None, "ref.teachers is set, but the batch has no column teacher"
            own = inputs.response_mask & (teachers == number)[:, None]
            metrics[_LOSS + name] = token_share(divergence.detach(), own, inputs.totals)
            metrics[_FRAC + name] = token_share(own, own, inputs.totals)
        return inputs, term, metrics


def finish(metrics: Mapping[str, float], *, prefix: str) -> dict[str, float]:
    """Return the metrics with the divergence of each teacher as a mean over its own tokens, or without it if it has
    none.

    Args:
        prefix: prefix of every name, for example "actor/".
    """
    finished = dict(metrics)
    for name, share in metrics.items():
        if name.startswith(prefix + _FRAC):
            loss = prefix + _LOSS + name.removeprefix(prefix + _FRAC)
            found = finished.pop(loss)
            finished |= {loss: found / share} if share else {}
    return finished
