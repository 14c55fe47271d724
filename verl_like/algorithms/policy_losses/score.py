"""Losses on log_probs, weighted by numbers without gradient: reinforce (and gpg), cispo, dppo_tv, dppo_kl, dro."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.policy_losses.base import bounded_log_ratio, ratio_metrics
from verl_like.algorithms.types import LossInputs, TokenLosses
from verl_like.config.schema import PolicyLossConfig


def reinforce(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return -A * log_probs per token: the plain policy gradient, without a ratio, correct only for the first update on
    a batch.

    GPG (2504.02546) is this loss with ``token-mean`` and its own advantages.
    """
    return TokenLosses(losses=-inputs.advantages * inputs.log_probs)


def cispo(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return -clip(r) A log_probs with the clipped ratio held constant: every token keeps a gradient (2506.13585,
    equations 4 and 5).

    The paper bounds the ratio only from above; that is ``clip_ratio_low`` = 1 here.

    Returns:
        Metrics: ``clip_frac`` (tokens whose ratio is out of bounds), and those of ``ratio_metrics``.
    """
    log_ratio = bounded_log_ratio(inputs).detach()
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
    metrics = {"clip_frac": clipped != ratio, **ratio_metrics(log_ratio, ratio)}
    return TokenLosses(losses=-clipped * inputs.advantages * inputs.log_probs, metrics=metrics)


def dppo_tv(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Apply a trust region to the token's probability p itself, not to its ratio (2602.04879, its Binary-TV).

    Per token -min(r, ``dppo_max_ratio``) A log_probs with the factor held constant. A token whose probability has
    already moved in the direction of its advantage, by more than ``clip_ratio_high`` up or ``clip_ratio_low`` down, is
    left out. So a rare token may multiply its probability, and a likely one cannot lose much of it.

    Returns:
        Metrics: ``clip_frac`` (tokens left out), and those of ``ratio_metrics``.
    """
    moved = inputs.log_probs.detach().exp() - inputs.old_log_probs.exp()
    return _divergence_bounded(inputs, config, divergence=moved.abs())


def dppo_kl(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return ``dppo_tv`` bounded by the KL of (p, 1 - p) from old to new in nats instead of |p - old p| (2602.04879,
    Binary-KL).
    """
    log_probs, old = inputs.log_probs.detach(), inputs.old_log_probs
    divergence = old.exp() * (old - log_probs) - old.expm1() * (_log_complement(old) - _log_complement(log_probs))
    return _divergence_bounded(inputs, config, divergence=divergence)


def _log_complement(log_probs: Tensor) -> Tensor:
    """Return log(1 - p), finite for p = 1 and for a p above 1 from rounding."""
    return (-log_probs.expm1()).clamp(min=torch.finfo(log_probs.dtype).tiny).log()


def _divergence_bounded(inputs: LossInputs, config: PolicyLossConfig, *, divergence: Tensor) -> TokenLosses:
    log_ratio = bounded_log_ratio(inputs).detach()
    ratio = log_ratio.exp()
    is_too_high = (log_ratio > 0) & (divergence > config.clip_ratio_high)
    is_too_low = (log_ratio < 0) & (divergence > config.clip_ratio_low)
    is_held = torch.where(inputs.advantages > 0, is_too_high, is_too_low)
    factor = torch.where(is_held, 0.0, ratio.clamp(max=config.dppo_max_ratio))
    metrics = {"clip_frac": is_held, **ratio_metrics(log_ratio, ratio)}
    return TokenLosses(losses=-factor * inputs.advantages * inputs.log_probs, metrics=metrics)


def dro(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return -A log_probs + ``dro_beta`` / 2 * (log_probs - old_log_probs)^2 per token: the square instead of a clip.

    The policy's gradient of Direct Reward Optimisation (2405.19107, section 3, divided by its tau = ``dro_beta``), with
    the advantage for r - V and the old policy for the reference. Its minimum in a token's log-prob is A / beta nats
    from the old one. The log-ratio is not bounded: nothing overflows, and the square must act on tokens with an extreme
    ratio.

    Returns:
        Metrics: those of ``ratio_metrics``.
    """
    log_ratio = bounded_log_ratio(inputs).detach()
    square = (inputs.log_probs - inputs.old_log_probs).square()
    token_losses = -inputs.advantages * inputs.log_probs + 0.5 * config.dro_beta * square
    return TokenLosses(losses=token_losses, metrics=ratio_metrics(log_ratio, log_ratio.exp()))
