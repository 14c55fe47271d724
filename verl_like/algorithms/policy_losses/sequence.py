"""Losses on one ratio per response: the geometric mean of its tokens' ratios (gspo, gmpo), or their product (vespo,
a_star_po).

Each token of a response has the response's loss or weight, so that every aggregation and rollout-correction weights per
token work; the mean over responses of gspo's and gmpo's papers is ``seq-mean-token-mean``.

As in the papers, no token's log-ratio is bounded before the mean or the sum is taken, which is clamped to +-20 nats, so
that exp stays finite. A clamped response of gspo and gmpo has no gradient.

Of an episode with several rows, each row has its own ratio: the rows may be in different micro-batches.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.kl import MAX_LOG_RATIO
from verl_like.algorithms.policy_losses.base import bounded_log_ratio, clipped_surrogate, ratio_metrics, row_mean
from verl_like.algorithms.types import LossInputs, TokenLosses
from verl_like.config.schema import PolicyLossConfig


def _held(mean_log_ratio: Tensor) -> Tensor:
    """Clamp to +-20 nats."""
    return mean_log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def gspo(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return the clipped surrogate with the response's ratio for each of its tokens (2507.18071, equations 5 and 7).

    s = exp(mean over the response of log r), the mean clamped to +-20 nats. The gradient is that of the paper's token
    form (equations 13 and 14): s A for each token. It equals that of the sequence form if the advantage is one number
    per response, and is correct otherwise too. A response is clipped as a whole; its bounds are far tighter than a
    token's (the paper: 3e-4 and 4e-4).

    Returns:
        Metrics: ``clip_frac`` (tokens of clipped responses), and those of ``ratio_metrics`` with s as the ratio.
    """
    log_ratio = inputs.log_probs - inputs.old_log_probs
    # The value is s for every token, the gradient that of the token's own log-prob; zero, not NaN, if that is -inf.
    own = (log_ratio - log_ratio.detach()).nan_to_num()
    ratio = _held(row_mean(log_ratio, inputs.response_mask).detach() + own).exp()
    token_losses, is_held = clipped_surrogate(ratio, inputs, config)
    metrics = {"clip_frac": is_held, **ratio_metrics(bounded_log_ratio(inputs), ratio)}
    return TokenLosses(losses=token_losses, metrics=metrics)


def gmpo(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return -A times the geometric mean of the response's clipped ratios (2507.20673, its objective with token-level
    clipping).

    A token's log-ratio is clipped at +``clip_ratio_high`` for A > 0 and at -``clip_ratio_low`` for A < 0 (the paper:
    0.4 nats both). Then the mean over the response is taken, clamped to +-20 nats and exponentiated. A clipped token
    has no gradient; the others share the response's.

    Returns:
        Metrics: ``clip_frac`` (clipped tokens), and those of ``ratio_metrics`` with the response's ratio.
    """
    log_ratio = inputs.log_probs - inputs.old_log_probs
    held = torch.where(
        inputs.advantages > 0, log_ratio.clamp(max=config.clip_ratio_high), log_ratio.clamp(min=-config.clip_ratio_low)
    )
    ratio = _held(row_mean(held, inputs.response_mask)).exp().expand_as(log_ratio)
    metrics = {"clip_frac": held != log_ratio, **ratio_metrics(bounded_log_ratio(inputs), ratio)}
    return TokenLosses(losses=-inputs.advantages * ratio, metrics=metrics)


def vespo(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return -phi(W) A log_probs with a soft weight on the response's importance ratio W, held constant (VESPO,
    2602.10693).

    W is the product of the response's token ratios, its logarithm clamped to +-20 nats. phi(W) = exp(lambda) W^k
    exp(-lambda W), which is 1 at W = 1, has its maximum at W = k / lambda, and decays on both sides. k and lambda are
    ``vespo_k_pos`` and ``vespo_lambda_pos`` for A >= 0, ``vespo_k_neg`` and ``vespo_lambda_neg`` otherwise.

    Returns:
        Metrics: ``sequence_weight_mean`` (phi), and those of ``ratio_metrics`` with the tokens' ratios.
    """
    log_ratio = bounded_log_ratio(inputs).detach()
    total = (inputs.log_probs - inputs.old_log_probs).detach().sum(-1, keepdim=True)
    log_product = _held(total)
    is_positive = inputs.advantages >= 0
    k = torch.where(is_positive, config.vespo_k_pos, config.vespo_k_neg)
    decay = torch.where(is_positive, config.vespo_lambda_pos, config.vespo_lambda_neg)
    weight = (decay + k * log_product - decay * log_product.exp()).exp()
    metrics = {"sequence_weight_mean": weight, **ratio_metrics(log_ratio, log_ratio.exp())}
    return TokenLosses(losses=-weight * inputs.advantages * inputs.log_probs, metrics=metrics)


def a_star_po(inputs: LossInputs, config: PolicyLossConfig) -> TokenLosses:
    """Return the squared error of a response's log-ratio to the reference as an estimate of its advantage (A*-PO,
    2505.20686).

    (``a_star_beta`` * sum over the response of (log_probs - ref_log_probs) - A)^2 for each token, of which
    ``seq-mean-token-mean`` is the paper's mean over responses. The optimal policy has no error: its log-ratio to the
    reference is (R - V*) / beta. Nothing is clamped, since nothing is exponentiated.

    Returns:
        Metrics: those of ``ratio_metrics``.
    """
    assert inputs.ref_log_probs is not None, "a_star_po needs ref_log_probs, but the batch has none"
    log_ratio = bounded_log_ratio(inputs).detach()
    estimate = config.a_star_beta * (inputs.log_probs - inputs.ref_log_probs).sum(-1, keepdim=True)
    return TokenLosses(
        losses=(estimate - inputs.advantages).square(), metrics=ratio_metrics(log_ratio, log_ratio.exp())
    )
