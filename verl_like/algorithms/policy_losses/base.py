"""Parts common to policy losses: the bounded ratio, the clipped surrogate, and the steps before (:func:`zero_padded`)
and after (:func:`aggregated`) each of them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from verl_like.algorithms.aggregate import aggregate, token_share
from verl_like.algorithms.kl import MAX_LOG_RATIO, kl
from verl_like.algorithms.types import LossInputs, LossOutput, TokenLosses
from verl_like.config.schema import PolicyLossConfig

# Metrics actor/NAME that do not come from the policy loss.
OF_EVERY_UPDATE = frozenset({"loss", "policy_loss", "grad_norm", "lr", "skipped_updates"})


def zero_padded(inputs: LossInputs) -> LossInputs:
    """Return the same inputs with zeros outside the mask.

    Padding may hold anything. Masking the loss would not be enough: a zero gradient times a NaN is NaN, and a sum over
    the row would propagate it to the valid tokens.
    """
    mask = inputs.response_mask

    def clean(column: Tensor | None) -> Tensor | None:
        return None if column is None else torch.where(mask, column, 0.0)

    return replace(
        inputs,
        log_probs=torch.where(mask, inputs.log_probs, 0.0),
        old_log_probs=torch.where(mask, inputs.old_log_probs, 0.0),
        advantages=torch.where(mask, inputs.advantages, 0.0),
        ref_log_probs=clean(inputs.ref_log_probs),
        rollout_log_probs=clean(inputs.rollout_log_probs),
        entropy=clean(inputs.entropy),
        covariance_rank=clean(inputs.covariance_rank),
    )


def bounded_log_ratio(inputs: LossInputs) -> Tensor:
    """Return [B, T] log_probs - old_log_probs, clamped to +-20 nats so that exp stays finite; a clamped token has no
    gradient.
    """
    return (inputs.log_probs - inputs.old_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def row_mean(token_values: Tensor, mask: Tensor) -> Tensor:
    """Return [B, 1], the mean over the row's valid tokens, 0 for a row without any; padding must be zero."""
    return token_values.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def clipped_surrogate(ratio: Tensor, inputs: LossInputs, config: PolicyLossConfig) -> tuple[Tensor, Tensor]:
    """Return [B, T] max(-A r, -A clip(r, 1 - low, 1 + high)), and [B, T] bool: clipped tokens, which have no
    gradient.
    """
    unclipped = -inputs.advantages * ratio
    clipped = -inputs.advantages * ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
    return torch.maximum(unclipped, clipped), clipped > unclipped


def ratio_metrics(log_ratio: Tensor, ratio: Tensor) -> dict[str, Tensor]:
    """Return ``ppo_kl`` (k3 estimate of KL(old, new), nats) and ``ratio_mean`` of each token, [B, T]."""
    return {"ppo_kl": kl(torch.zeros_like(log_ratio), log_ratio, "k3"), "ratio_mean": ratio}


def aggregated(
    found: TokenLosses, inputs: LossInputs, config: PolicyLossConfig, *, weights: Tensor | None = None
) -> LossOutput:
    """Return this micro-batch's share of the mini-batch's policy loss, under ``config.loss_aggregation``, and its
    metrics.

    Args:
        found: result of the loss for ``inputs``.
        weights: [B, T] of the rollout correction, by which each token's loss is multiplied; zero where rejected. They
            get no gradient.

    Raises:
        ValueError: if ``found`` is not a valid result of a policy loss; a user's function may return anything.
    """
    mask, totals = inputs.response_mask, inputs.totals
    _check(found, mask.shape, name=config.policy_loss)
    losses = found.losses
    if weights is not None:
        # Masked first: a loss that couples the tokens of a row would propagate a NaN of the padding to the valid ones.
        losses = losses * torch.where(mask, weights, 0.0).detach()
    return LossOutput(
        loss=aggregated_tokens(losses, inputs, config.loss_aggregation),
        metrics={name: token_share(_of_tokens(values, mask), mask, totals) for name, values in found.metrics.items()},
    )


def aggregated_tokens(token_values: Tensor, inputs: LossInputs, mode: str) -> Tensor:
    """Return :func:`aggregate` of these values [B, T], with the counts of ``inputs``."""
    return aggregate(
        token_values, inputs.response_mask, mode, inputs.totals, inputs.sequence_tokens, inputs.group_tokens
    )


def _check(found: object, shape: torch.Size, *, name: str) -> None:
    remedy = (
        "Return TokenLosses(losses=..., metrics={...}) of verl_like.algorithms.types, one number per token: weights, "
        "mask and aggregation are applied to what it returns (docs/algorithms.md, Your own)."
    )
    if not isinstance(found, TokenLosses):
        raise ValueError(f"actor.policy_loss={name} returned a {type(found).__name__}; expected TokenLosses. {remedy}")
    for what, values in {**found.metrics, "losses": found.losses}.items():
        if (isinstance(values, Tensor) and values.shape == shape) or (what != "losses" and _is_number(values)):
            continue
        form = f"a tensor of shape {list(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
        raise ValueError(
            f"actor.policy_loss={name} returned {form} for {what!r}; expected a tensor [B, T] = {list(shape)} like "
            f"inputs.log_probs{'' if what == 'losses' else ', or one number'}. {remedy}"
        )
    if taken := sorted(OF_EVERY_UPDATE.intersection(found.metrics)):
        raise ValueError(
            f"actor.policy_loss={name} returned a metric {taken[0]!r}, but every update reports actor/{taken[0]} "
            "itself. Give it another name."
        )


def _is_number(values: object) -> bool:
    return isinstance(values, (int, float)) or (isinstance(values, Tensor) and values.dim() == 0)


def _of_tokens(values: Tensor | float, mask: Tensor) -> Tensor:
    """Return a metric as one number per token."""
    if isinstance(values, Tensor) and values.dim():
        return values
    return torch.full(mask.shape, float(values), device=mask.device)
