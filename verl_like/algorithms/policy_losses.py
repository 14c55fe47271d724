"""Policy losses. ``POLICY_LOSSES`` is the list; each is a pure function of one micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch

from verl_like.algorithms.aggregate import aggregate, token_share
from verl_like.algorithms.kl import MAX_LOG_RATIO, kl
from verl_like.algorithms.lookup import look_up
from verl_like.algorithms.types import LossInputs, LossOutput
from verl_like.config.schema import PolicyLossConfig

PolicyLoss = Callable[[LossInputs, PolicyLossConfig], LossOutput]


def ppo(inputs: LossInputs, config: PolicyLossConfig) -> LossOutput:
    """The clipped surrogate (1707.06347, equation 7) with separate bounds below and above (DAPO, 2503.14476, equation 10).

    Per token, with ratio r = exp(log_probs - old_log_probs): max(-A r, -A clip(r, 1 - low, 1 + high)). For A < 0 that
    grows without bound in r; ``clip_ratio_dual`` = c > 1 caps it at -A c (1912.09729, equation 5), 0 leaves it.
    The log-ratio is clamped to +-20 nats; a token out there has no gradient.

    Returns:
        Metrics, all token means: ``clip_frac`` (tokens the clip holds), ``clip_frac_dual`` (tokens the dual clip
        holds; only where it is on), ``ppo_kl`` (k3 estimate of KL(old, new), nats), ``ratio_mean``.
    """
    mask, advantages, totals = inputs.response_mask, inputs.advantages, inputs.totals
    # Padding may hold anything; zero it before exp, or an infinite derivative there would make NaN gradients.
    log_ratio = torch.where(mask, inputs.log_probs - inputs.old_log_probs, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
    token_losses = torch.maximum(unclipped, clipped)
    metrics = {
        "clip_frac": token_share(clipped > unclipped, mask, totals),
        "ppo_kl": token_share(kl(torch.zeros_like(log_ratio), log_ratio, "k3"), mask, totals),
        "ratio_mean": token_share(ratio, mask, totals),
    }
    if config.clip_ratio_dual > 0:
        cap = -advantages * config.clip_ratio_dual
        is_held = (advantages < 0) & (token_losses > cap)
        token_losses = torch.where(is_held, cap, token_losses)
        metrics["clip_frac_dual"] = token_share(is_held, mask, totals)
    return LossOutput(loss=aggregate(token_losses, mask, config.loss_aggregation, totals), metrics=metrics)


def reinforce(inputs: LossInputs, config: PolicyLossConfig) -> LossOutput:
    """-A * log_probs per token: the plain policy gradient, without a ratio, right only for the first update on a batch."""
    log_probs = torch.where(inputs.response_mask, inputs.log_probs, 0.0)
    return LossOutput(loss=aggregate(-inputs.advantages * log_probs, inputs.response_mask, config.loss_aggregation, inputs.totals))


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "ppo": ppo,
    "reinforce": reinforce,
}


def policy_loss(name: str) -> PolicyLoss:
    """The loss that ``actor.policy_loss`` names: one of ``POLICY_LOSSES``, or ``module:function`` of a user's own."""
    found = look_up(name, POLICY_LOSSES, knob="actor.policy_loss")
    if not callable(found):
        raise ValueError(f"actor.policy_loss={name} names a {type(found).__name__}; expected a function of (LossInputs, PolicyLossConfig).")
    return cast(PolicyLoss, found)
