"""Scores of log-ratios by the f-divergence that keeps the policy near its reference.

A loss of pairs compares ``f'(r)`` of both responses, for the ratio ``r`` of policy to reference. The KL of the policy
from the reference, ``reverse_kl``, gives the log-ratio itself. Source: f-DPO, 2309.16240, table 1, as in TRL 1.16.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from verl_like.config.schema import DpoConfig

MAX_EXPONENT = 80.0  # exp of a larger number may overflow float32
Score = Callable[[Tensor], Tensor]


def reverse_kl(log_ratio: Tensor) -> Tensor:
    return log_ratio


def forward_kl(log_ratio: Tensor) -> Tensor:
    """1 - 1 / r."""
    return 1 - torch.exp(-log_ratio)


def js_divergence(log_ratio: Tensor) -> Tensor:
    """log(2 r / (r + 1))."""
    return math.log(2) + logsigmoid(log_ratio)


def alpha_divergence(log_ratio: Tensor, alpha: float) -> Tensor:
    """(r^(alpha - 1) - 1) / (alpha - 1), whose limit for alpha = 1 is the log-ratio; r^(alpha - 1) is at most e^80."""
    if abs(alpha - 1) < 1e-6:
        return log_ratio
    exponent = torch.clamp((alpha - 1) * log_ratio, max=MAX_EXPONENT)
    return (torch.exp(exponent) - 1) / (alpha - 1)


def score_of(config: DpoConfig) -> Score:
    """Return the function of ``dpo.f_divergence``, from log-ratios in nats, of any shape, to scores."""
    if config.f_divergence == "alpha_divergence":
        return lambda log_ratio: alpha_divergence(log_ratio, config.f_alpha)
    return {function.__name__: function for function in (reverse_kl, forward_kl, js_divergence)}[config.f_divergence]
