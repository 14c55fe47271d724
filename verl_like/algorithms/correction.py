"""Rollout correction for the different probabilities that the engine and the trainer give to the same token.

A token drawn from ``pi_rollout`` and learned from as if ``pi_old`` had drawn it is off-policy. Its importance weight is
``w = pi_old / pi_rollout``, of the token or of the whole sequence:

- **truncated** at ``upper``: TIS (Ionides, 2008, J. Comput. Graph. Stat. 17; per token as in IMPALA, 1802.01561; for
  this mismatch Yao et al., 2025, https://fengyao.notion.site/off-policy-rl);
- **masked** outside ``lower`` and ``upper``: IcePop (Ring-1T, 2510.18855); for whole sequences MIS (Liu, Li et al.,
  2025, https://richardli.xyz/rl-collapse).

Independently of the weights, tokens or sequences are **rejected** if their ratio, or its geometric mean over the
sequence (same source; DeepSeek-V3.2, 2512.02556), is out of bounds. A sequence is **vetoed** for one token that the
trainer considers nearly impossible.

The loss keeps the denominators of all tokens, not only of the kept ones: a rejected token contributes nothing, and no
other token gets more weight for it. The number of kept tokens is known only once every micro-batch of every rank has
run, so a loss divided by it would depend on the distribution of rows. It would also give the few remaining tokens of a
bad batch the largest weight.

**top-p and top-k.** The engine's log-probs are renormalised over the candidates S that it keeps, the trainer's are over
the whole vocabulary. Their ratio is Z times the correct one, Z being the trainer's mass on S: with equal models the
weight is Z instead of 1 (Z >= top_p; no such bound for top_k), and Z^T over a sequence. So
:mod:`verl_like.checks.algorithm` refuses this combination, unless the trainer's log-probs are over S as well (keep
sampling mask, 2512.02556; :mod:`verl_like.ops.candidates`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_like.algorithms.aggregate import token_share
from verl_like.algorithms.kl import MAX_LOG_RATIO, kl
from verl_like.algorithms.types import BatchTotals
from verl_like.config.schema import CorrectionConfig

_WEIGHT, _WEIGHT_SQUARED, _ESS = "correction_weight_mean", "correction_weight_squared_mean", "correction_ess_frac"


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """The correction of one micro-batch's loss.

    Args:
        weights: [B, T] float32 without gradient, zero where ``kept`` is false.
        kept: [B, T] bool, true where the token is learned from; never outside the mask.
        metrics: this micro-batch's share of each metric; :func:`finish` converts their sums.
    """

    weights: Tensor
    kept: Tensor
    metrics: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSums:
    """Sum and number of the weights of some rows, per token or sequence by ``config.level``; combined with ``+``.

    Args:
        total: sum of the weights after truncation or masking, without rejection and normalisation.
        count: number of weights.
    """

    total: float = 0.0
    count: int = 0

    def __add__(self, other: WeightSums) -> WeightSums:
        return WeightSums(total=self.total + other.total, count=self.count + other.count)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _LogRatios:
    """log(pi_old / pi_rollout) in nats, not clamped.

    ``token`` [B, T] float32 is that of tokens (zero where masked), ``sequence`` [B] float64 that of whole sequences.
    """

    token: Tensor
    sequence: Tensor


def _log_ratios(old_log_probs: Tensor, rollout_log_probs: Tensor, mask: Tensor) -> _LogRatios:
    # Padding may hold anything, including NaN.
    token = torch.where(mask, old_log_probs.float() - rollout_log_probs.float(), 0.0)
    return _LogRatios(token=token, sequence=token.sum(-1, dtype=torch.float64))


def is_on(config: CorrectionConfig) -> bool:
    """Return whether the configuration enables any correction."""
    return config.is_on


def is_needed(config: CorrectionConfig, *, mean_gap: float) -> bool:
    """Return whether a correction is enabled and the gap is large enough.

    Args:
        mean_gap: mean over the batch's tokens of abs(old_log_probs - rollout_log_probs), in nats.
    """
    return is_on(config) and mean_gap >= config.min_gap


@torch.no_grad()
def weight_sums(old_log_probs: Tensor, rollout_log_probs: Tensor, mask: Tensor, config: CorrectionConfig) -> WeightSums:
    """Return the sums over all rows that :func:`correction` needs for ``batch_normalize``; [B, T] each, ``mask`` bool.

    With ``level=token`` each token has a weight; with ``level=sequence`` each sequence has one, whatever its length.
    """
    ratios = _log_ratios(old_log_probs, rollout_log_probs, mask)
    log_weights = ratios.sequence[mask.any(-1)] if config.level == "sequence" else _log_weights(ratios, config)[mask]
    return WeightSums(
        total=float(_bounded_weights(log_weights, config).sum(dtype=torch.float64)), count=log_weights.numel()
    )


@torch.no_grad()
def correction(
    old_log_probs: Tensor,
    rollout_log_probs: Tensor,
    mask: Tensor,
    config: CorrectionConfig,
    *,
    totals: BatchTotals,
    mean_weight: float | None,
    sequence_tokens: Tensor | None = None,
) -> Correction:
    """Return weights and rejections of one micro-batch, and its share of the mini-batch's metrics.

    Ratios are clamped to +-20 nats before exp; bounds are compared before that. A NaN inside the mask stays a NaN
    weight: the update is then skipped because of its gradient, instead of the token silently.

    Args:
        old_log_probs: [B, T] nats, the trainer's before the update.
        rollout_log_probs: [B, T] nats, the engine's, at the same temperature.
        mask: [B, T] bool; values outside it, including NaN, are ignored.
        totals: counts over the mini-batch, of all tokens and sequences, kept or not.
        mean_weight: ``WeightSums.mean`` of the whole batch, by which ``batch_normalize`` divides. It is taken before
            rejection, so that kept tokens do not gain the weight of rejected ones.
        sequence_tokens: [B] true entries of the mask in all rows of the row's episode, if it may have several. Weights,
            rejections and vetoes of sequences are those of rows; a row counts in a sequence mean by its share of the
            episode's tokens.

    Returns:
        Metrics, each named ``correction_...``; a token mean is over all tokens of the mini-batch, a sequence mean over
        all sequences:

        - ``kl_k1``, ``kl_k3``: estimates of KL(rollout, old), nats per token.
        - ``chi2_token``, ``chi2_sequence``: chi-square of old from rollout, mean of w^2 - 1 with w of tokens, of
          sequences.
        - ``log_ppl_gap_mean``, ``log_ppl_gap_abs_mean``: sequence means of log perplexity of old minus that of rollout,
          nats.
        - ``weight_mean``, ``weight_squared_mean``: token means of ``weights`` and their squares; rejected tokens count
          as 0.
        - ``kept_frac``: of tokens. ``truncated_frac`` or ``masked_frac`` (with a level), ``rejected_frac`` (with a
          rejection): of tokens. ``vetoed_frac`` (with a veto): of sequences.
    """
    ratios = _log_ratios(old_log_probs, rollout_log_probs, mask)
    log_weights = _log_weights(ratios, config)
    is_masked = (
        _is_outside(log_weights, config.lower, config.upper) if config.mode == "mask" else torch.zeros_like(mask)
    )
    is_rejected = _is_rejected(ratios, mask, config)
    is_vetoed = (ratios.token < _log(config.veto_threshold)).any(-1)
    kept = mask & ~is_masked & ~is_rejected & ~is_vetoed[:, None]

    weights = _bounded_weights(log_weights, config)
    if config.batch_normalize:
        assert mean_weight is not None, (
            "batch_normalize divides by the mean weight of the whole batch, which was not passed"
        )
        weights = weights / mean_weight  # 0 / 0 only if every weight of the batch is masked, and then none is kept
    weights = torch.where(kept, weights, 0.0)

    row_shares = 1.0 if sequence_tokens is None else mask.sum(-1).double() / sequence_tokens.clamp(min=1)
    metrics = _gap_metrics(ratios, mask, totals, row_shares)
    metrics |= {
        _WEIGHT: token_share(weights, mask, totals),
        _WEIGHT_SQUARED: token_share(weights.square(), mask, totals),
        "correction_kept_frac": token_share(kept, mask, totals),
    }
    if config.level != "off" and config.mode == "truncate":
        metrics["correction_truncated_frac"] = token_share(log_weights > _log(config.upper), mask, totals)
    if config.level != "off" and config.mode == "mask":
        metrics["correction_masked_frac"] = token_share(is_masked, mask, totals)
    if config.rejection != "off":
        metrics["correction_rejected_frac"] = token_share(is_rejected, mask, totals)
    if config.veto_threshold > 0:
        metrics["correction_vetoed_frac"] = _sequence_share(is_vetoed * row_shares, totals)
    return Correction(weights=weights, kept=kept, metrics=metrics)


def finish(metrics: Mapping[str, float], *, prefix: str = "") -> dict[str, float]:
    """Return the metrics of a mini-batch from its summed shares; other names are passed through.

    ``correction_weight_squared_mean`` is replaced by ``correction_ess_frac`` = (mean w)^2 / mean w^2, Kish's effective
    sample size as a fraction of all tokens: 1 if all weights are equal, 0 if all tokens are rejected. It is not a sum
    of shares.

    Args:
        prefix: prefix of every name, for example "actor/".
    """
    finished = dict(metrics)
    if prefix + _WEIGHT_SQUARED in finished:
        squares = finished.pop(prefix + _WEIGHT_SQUARED)
        finished[prefix + _ESS] = finished[prefix + _WEIGHT] ** 2 / squares if squares else 0.0
    return finished


def _log_weights(ratios: _LogRatios, config: CorrectionConfig) -> Tensor:
    """Return [B, T]: log of each token's weight before any bound."""
    if config.level == "sequence":
        return ratios.sequence[:, None].expand_as(ratios.token)
    return ratios.token if config.level == "token" else torch.zeros_like(ratios.token)


def _bounded_weights(log_weights: Tensor, config: CorrectionConfig) -> Tensor:
    """Return weights, float32, truncated, or zero where masked."""
    weights = _safe_exp(log_weights)
    if config.mode == "mask":
        return torch.where(_is_outside(log_weights, config.lower, config.upper), 0.0, weights)
    return weights.clamp(max=config.upper)


def _is_rejected(ratios: _LogRatios, mask: Tensor, config: CorrectionConfig) -> Tensor:
    """Return [B, T] bool; whole rows except with ``rejection=token``."""
    if config.rejection == "off":
        return torch.zeros_like(mask)
    if config.rejection == "token":
        return _is_outside(ratios.token, config.rejection_lower, config.rejection_upper)
    statistic = ratios.sequence if config.rejection == "sequence" else ratios.sequence / mask.sum(-1).clamp(min=1)
    return _is_outside(statistic, config.rejection_lower, config.rejection_upper)[:, None].expand_as(mask)


def _gap_metrics(
    ratios: _LogRatios, mask: Tensor, totals: BatchTotals, row_shares: Tensor | float
) -> dict[str, Tensor]:
    """Return metrics of the difference between old and rollout, without any correction."""
    log_ppl_gap = -ratios.sequence / mask.sum(-1).clamp(min=1)
    return {
        "correction_kl_k1": token_share(-ratios.token, mask, totals),
        "correction_kl_k3": token_share(kl(-ratios.token, torch.zeros_like(ratios.token), "k3"), mask, totals),
        # expm1, because w^2 - 1 is a sum of shares, and for small gaps rounding of w^2 would remove the difference.
        "correction_chi2_token": token_share(torch.expm1(2 * _clamped(ratios.token)), mask, totals),
        "correction_chi2_sequence": _sequence_share(torch.expm1(2 * _clamped(ratios.sequence)) * row_shares, totals),
        "correction_log_ppl_gap_mean": _sequence_share(log_ppl_gap * row_shares, totals),
        "correction_log_ppl_gap_abs_mean": _sequence_share(log_ppl_gap.abs() * row_shares, totals),
    }


def _sequence_share(values: Tensor, totals: BatchTotals) -> Tensor:
    """Return this micro-batch's share of the mean over the mini-batch's sequences of ``values`` [B].

    A row without tokens must have the value zero.
    """
    return values.double().sum() / max(totals.num_sequences, 1.0)


def _is_outside(log_ratio: Tensor, lower: float, upper: float) -> Tensor:
    """Return whether exp(log_ratio) is outside [lower, upper]; false for NaN."""
    return (log_ratio < _log(lower)) | (log_ratio > _log(upper))


def _log(bound: float) -> float:
    return math.log(bound) if bound > 0 else -math.inf


def _clamped(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _safe_exp(log_ratio: Tensor) -> Tensor:
    return _clamped(log_ratio).exp().float()
