"""The actor's complete loss: policy loss + KL to the reference - entropy bonus."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from verl_like.algorithms.aggregate import aggregate, token_share
from verl_like.algorithms.correction import Correction, correction
from verl_like.algorithms.distillation import Distillation
from verl_like.algorithms.kl import kl
from verl_like.algorithms.policy_losses import policy_loss_of
from verl_like.algorithms.policy_losses.base import aggregated, aggregated_tokens, bounded_log_ratio, zero_padded
from verl_like.algorithms.token_masks import left_out, without
from verl_like.algorithms.types import BatchTotals, LossInputs, LossOutput
from verl_like.config.schema import ActorConfig, CorrectionConfig
from verl_like.protocol import DataProto


class LogProbGap:
    """Difference between the trainer's and the engine's log-probs, over the tokens that this rank has processed."""

    def __init__(self) -> None:
        self.total, self.maximum, self.count = 0.0, 0.0, 0

    def add(self, gap: NDArray[np.float32]) -> None:
        """Add absolute differences [K], in nats."""
        if gap.size:
            self.total += float(gap.sum(dtype=np.float64))
            self.maximum = max(self.maximum, float(gap.max()))
            self.count += int(gap.size)

    def report(self) -> dict[str, float]:
        """Return sums and a maximum that the driver combines over ranks."""
        return {"gap_sum": self.total, "gap_max": self.maximum, "gap_count": float(self.count)}


class ActorLoss:
    """policy loss + kl_loss_coef * KL(actor, ref) + rollout_kl_coef * (log pi - log pi_rollout)^2 - entropy_coef *
    entropy, each term under ``actor.loss_aggregation``.

    With ``weigh_kl_by_ratio`` the KL of a token is multiplied by its ratio pi / pi_old (DeepSeek-V3.2, 2512.02556).

    With a ``correction`` each token's policy loss is weighted for the difference between the engine and the trainer.
    Tokens that :func:`verl_like.algorithms.token_masks.left_out` names have no policy loss.

    A ``distillation`` adds its own term, or changes the advantages.

    Reads the columns ``response_mask``, ``old_log_probs``, ``advantages``, ``ref_log_probs`` if ``kl_loss_coef`` >
    0 or distillation reads them, and ``rollout_log_probs`` if ``rollout_kl_coef`` > 0.

    If no stage has computed ``old_log_probs``, a ``gap`` is passed, which then collects the difference between the
    log-probs of this forward pass and the engine's. The old log-probs are the engine's with ``use_rollout_log_probs``.
    Otherwise they are those of this forward pass, which belong to the same policy if the batch makes one update.

    Metrics are named ``actor/...``: ``loss`` (all terms), ``policy_loss``, ``kl_loss``, ``rollout_kl_loss`` and
    ``entropy`` (unweighted, only if their coefficient is above 0; entropy is the mean over tokens, in nats), and the
    metrics of the policy loss and of the masks.
    """

    def __init__(
        self,
        config: ActorConfig,
        correction: CorrectionConfig | None = None,
        *,
        mean_weight: float | None = None,
        gap: LogProbGap | None = None,
        distillation: Distillation | None = None,
    ) -> None:
        self.config, self.correction, self.mean_weight, self.gap = config, correction, mean_weight, gap
        self.distillation = distillation
        self.policy_loss = policy_loss_of(config)
        self.token_losses = self.policy_loss.function

    @property
    def needs_entropy(self) -> bool:
        return self.config.entropy_coef > 0 or "entropy" in self.policy_loss.needs

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        if not self.config.skip_zero_advantages:
            return np.ones(len(rows), bool)
        return rows.ragged("advantages").count_nonzero() > 0

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        config, mask = self.config, columns["response_mask"]
        inputs = zero_padded(
            LossInputs(
                log_probs=outputs["log_probs"],
                old_log_probs=self._old_log_probs(outputs, columns),
                advantages=columns["advantages"],
                response_mask=mask,
                totals=totals,
                ref_log_probs=columns.get("ref_log_probs"),
                rollout_log_probs=columns.get("rollout_log_probs"),
                entropy=outputs.get("entropy"),
                covariance_rank=columns.get("covariance_rank"),
                sequence_tokens=columns.get("episode_tokens"),
                group_tokens=columns.get("group_tokens"),
            )
        )
        kl_loss, taught = self._kl_loss(inputs), None
        metrics: dict[str, Tensor] = {}
        if self.distillation is not None:
            inputs, taught, metrics = self.distillation.applied(
                inputs, outputs, config.loss_aggregation, columns.get("teacher")
            )
        corrected = self._corrected(inputs)
        found = self.token_losses(inputs, config)
        dropped = left_out(inputs, config, columns.get("is_high_entropy"))
        weights = without(None if corrected is None else corrected.weights, dropped)
        policy = aggregated(found, inputs, config, weights=weights)
        loss = policy.loss
        metrics |= {
            "policy_loss": policy.loss.detach(),
            **policy.metrics,
            **({} if corrected is None else corrected.metrics),
            **{name: token_share(tokens, mask, totals) for name, tokens in dropped.items()},
        }
        if kl_loss is not None:
            loss = loss + config.kl_loss_coef * kl_loss
            metrics["kl_loss"] = kl_loss.detach()
        if config.rollout_kl_coef > 0:
            rollout_kl = self._rollout_kl(inputs)
            loss = loss + config.rollout_kl_coef * rollout_kl
            metrics["rollout_kl_loss"] = rollout_kl.detach()
        if taught is not None:
            loss = loss + taught
        if config.entropy_coef > 0:
            assert inputs.entropy is not None, "actor.entropy_coef > 0, but the forward pass returned no entropy"
            entropy = aggregated_tokens(inputs.entropy, inputs, config.loss_aggregation)
            loss = loss - config.entropy_coef * entropy
            metrics["entropy"] = token_share(inputs.entropy, mask, totals)
        metrics["loss"] = loss.detach()
        return LossOutput(loss=loss, metrics={f"actor/{name}": value for name, value in metrics.items()})

    def _old_log_probs(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor]) -> Tensor:
        if self.gap is None:
            return columns["old_log_probs"]
        log_probs, engines = outputs["log_probs"].detach(), columns["rollout_log_probs"]
        self.gap.add((log_probs - engines).abs()[columns["response_mask"]].cpu().numpy())
        return engines if self.config.use_rollout_log_probs else log_probs

    def _kl_loss(self, inputs: LossInputs) -> Tensor | None:
        """Return the KL to the reference, unweighted; None if the loss has no such term."""
        config = self.config
        if not config.kl_loss_coef:
            return None
        assert inputs.ref_log_probs is not None, "actor.kl_loss_coef > 0, but the batch has no ref_log_probs"
        token_kl = kl(inputs.log_probs, inputs.ref_log_probs, config.kl_loss_type)
        if config.weigh_kl_by_ratio:
            # With gradient: on samples of the old policy the product has the mean and the gradient of the KL itself.
            token_kl = token_kl * bounded_log_ratio(inputs).exp()
        return aggregated_tokens(token_kl, inputs, config.loss_aggregation)

    def _rollout_kl(self, inputs: LossInputs) -> Tensor:
        """Return the mean square of log pi - log pi_rollout under ``loss_aggregation`` (Kimi K2.5, 2602.02276)."""
        assert inputs.rollout_log_probs is not None, "actor.rollout_kl_coef > 0, but the batch has no rollout_log_probs"
        square = (inputs.log_probs - inputs.rollout_log_probs).square()
        return aggregated_tokens(square, inputs, self.config.loss_aggregation)

    def _corrected(self, inputs: LossInputs) -> Correction | None:
        """Return the weights for the difference between the engine and the trainer, if it is corrected."""
        if self.correction is None:
            return None
        assert inputs.rollout_log_probs is not None, (
            "a rollout correction is enabled, but the batch has no rollout_log_probs"
        )
        return correction(
            inputs.old_log_probs,
            inputs.rollout_log_probs,
            inputs.response_mask,
            self.correction,
            totals=inputs.totals,
            mean_weight=self.mean_weight,
            sequence_tokens=inputs.sequence_tokens,
        )


class SftLoss:
    """Mean negative log-prob of the target tokens, in nats, over all tokens of the mini-batch; the metric is
    ``sft/loss``.
    """

    needs_entropy = False

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        loss = aggregate(-outputs["log_probs"], columns["response_mask"], "token-mean", totals)
        return LossOutput(loss=loss, metrics={"sft/loss": loss.detach()})
