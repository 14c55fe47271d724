"""Losses on the token's ratio r = exp(log_probs - old_log_probs), through which the gradient flows: ppo, clip_cov,
kl_cov, sapo.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from verl_like.algorithms.kl import kl
from verl_like.algorithms.policy_losses.base import bounded_log_ratio, clipped_surrogate, ratio_metrics
from verl_like.algorithms.types import LossInputs, TokenLosses
from verl_like.config.schema import PolicyLossConfig


def ppo(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return the clipped surrogate (1707.06347, equation 7) with separate bounds below and above (DAPO, 2503.14476,
    equation 10).

    Per token max(-A r, -A clip(r, 1 - low, 1 + high)). For A < 0 that grows without bound in r; ``clip_ratio_dual`` = c
    > 1 caps it at -A c (1912.09729, equation 5), 0 does not.

    Returns:
        Metrics: ``clip_frac`` (clipped tokens), ``clip_frac_dual`` (tokens capped by the dual clip; only if it is on),
            and those of ``ratio_metrics``.
    """
    log_ratio = bounded_log_ratio(inputs)
    ratio = log_ratio.exp()
    token_losses, is_held = clipped_surrogate(ratio, inputs, config)
    metrics = {"clip_frac": is_held, **ratio_metrics(log_ratio, ratio)}
    if config.clip_ratio_dual > 0:
        cap = -inputs.advantages * config.clip_ratio_dual
        is_capped = (inputs.advantages < 0) & (token_losses > cap)
        token_losses = torch.where(is_capped, cap, token_losses)
        metrics["clip_frac_dual"] = is_capped
    return TokenLosses(losses=token_losses, metrics=metrics)


def clip_cov(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return ppo without a few tokens of high covariance, which would reduce the entropy most (2505.22617, equations 10
    to 12).

    The paper draws floor(r N) of the batch's N tokens at random among those whose covariance is between two bounds.
    Here the bounds are ranks (``clip_cov_rank_low`` to ``clip_cov_rank_high``: shares of the mini-batch from the top,
    which need no tuning to the scale of advantages). The draw is systematic: tokens are dropped at equal distances of
    ranks, starting with the first of the band, ceil(r N) in all. Each part of the band is dropped in proportion, as in
    the mean of the paper's draw. But the choice is a function of the token's rank alone: the same for every
    micro-batch, rank and epoch over the batch.

    Returns:
        Metrics: ``clip_frac`` (clipped tokens), ``cov_frac`` (dropped tokens), and those of ``ratio_metrics``.
    """
    assert inputs.covariance_rank is not None, "clip_cov needs covariance_rank, but the batch has none"
    log_ratio = bounded_log_ratio(inputs)
    ratio = log_ratio.exp()
    token_losses, is_held = clipped_surrogate(ratio, inputs, config)
    is_cut = _systematic_draw(inputs.covariance_rank, config, num_tokens=inputs.totals.num_tokens)
    metrics = {"clip_frac": is_held, "cov_frac": is_cut, **ratio_metrics(log_ratio, ratio)}
    return TokenLosses(losses=torch.where(is_cut, 0.0, token_losses), metrics=metrics)


def _systematic_draw(covariance_rank: Tensor, config: PolicyLossConfig, *, num_tokens: float) -> Tensor:
    """Return [B, T] bool: ``clip_cov_ratio`` of all tokens, evenly spaced over the band of ranks."""
    low, high, share = config.clip_cov_rank_low, config.clip_cov_rank_high, config.clip_cov_ratio
    if high <= low or share > high - low:
        raise ValueError(
            f"actor.clip_cov_ratio is {share}, but the band from clip_cov_rank_low={low} to clip_cov_rank_high={high} "
            f"holds {max(high - low, 0.0):.6g} of the tokens. Lower clip_cov_ratio, or widen the band."
        )
    per_rank = share / (high - low)
    index = (covariance_rank.double() * num_tokens).round()  # number of tokens with a higher covariance
    position = index - math.ceil(low * num_tokens)
    # A token is drawn when the running count passes an integer, so the counts of parts of the band add up. The slack is
    # for products that are integers except for rounding.
    is_drawn = ((position + 1) * per_rank - 1e-9).ceil() > (position * per_rank - 1e-9).ceil()
    return is_drawn & (position >= 0) & (index < high * num_tokens)


def kl_cov(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return -A r without a clip, plus a KL penalty on the tokens of highest covariance (2505.22617, equations 10, 13
    and 14).

    The top ``kl_cov_ratio`` of the mini-batch's tokens, by ``covariance_rank``, get ``ppo_kl_coef`` * |log r|.

    Returns:
        Metrics: ``cov_frac`` (tokens with the penalty), and those of ``ratio_metrics``.
    """
    assert inputs.covariance_rank is not None, "kl_cov needs covariance_rank, but the batch has none"
    log_ratio = bounded_log_ratio(inputs)
    ratio = log_ratio.exp()
    has_penalty = inputs.covariance_rank < config.kl_cov_ratio
    # Not the bounded ratio, because the penalty must act on tokens with an extreme ratio.
    penalty = config.ppo_kl_coef * kl(inputs.log_probs, inputs.old_log_probs, "abs")
    token_losses = -inputs.advantages * ratio + torch.where(has_penalty, penalty, 0.0)
    return TokenLosses(losses=token_losses, metrics={"cov_frac": has_penalty, **ratio_metrics(log_ratio, ratio)})


def sapo(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Use a soft gate instead of the clip (2511.20347, equations 5 and 6; the paper's mean is ``seq-mean-token-mean``).

    Per token -A (4 / tau) sigmoid(tau (r - 1)), where tau is ``tau_pos`` for A > 0 and ``tau_neg`` otherwise. At r = 1
    the gradient is the policy gradient for any tau; it decays as r leaves 1, faster for larger tau.

    Returns:
        Metrics: those of ``ratio_metrics``.
    """
    log_ratio = bounded_log_ratio(inputs)
    ratio = log_ratio.exp()
    tau = torch.where(inputs.advantages > 0, config.tau_pos, config.tau_neg)
    token_losses = -inputs.advantages * (4 / tau) * torch.sigmoid(tau * (ratio - 1))
    return TokenLosses(losses=token_losses, metrics=ratio_metrics(log_ratio, ratio))
