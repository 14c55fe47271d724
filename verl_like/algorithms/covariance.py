"""Rank tokens by the covariance of log-prob and advantage over a mini-batch: high ranks reduce the policy's entropy
most.
"""

from __future__ import annotations

import torch
from torch import Tensor

BELOW_ONE = 1 - 2**-24  # the largest float32 below 1


def covariance_ranks(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """Rank each token by (log_prob - mean) * (advantage - mean) (2505.22617, equation 10), from the top.

    Args:
        log_probs: [K] nats under the old policy, the valid tokens of one mini-batch in any order.
        advantages: [K].

    Returns:
        [K] float32 in [0, 1): the share of the K tokens, without this one, whose covariance is at least as high.
        Without ties the values are 0/K, 1/K, ..., so ``rank < k`` selects the top ceil(k K). Ties all get the
        value of the last of them: in a mini-batch without advantages, where all tie, none is selected.
    """
    assert log_probs.isfinite().all() and advantages.isfinite().all(), (
        "log_probs and advantages of valid tokens must be finite"
    )
    # float64: in float32 the error of the mean over a million tokens would exceed the difference of neighbouring
    # covariances.
    log_probs, advantages = log_probs.double(), advantages.double()
    covariances = (log_probs - log_probs.mean()) * (advantages - advantages.mean())
    num_tokens = len(covariances)
    num_lower = torch.searchsorted(covariances.sort().values, covariances)
    return ((num_tokens - 1 - num_lower) / max(num_tokens, 1)).clamp(max=BELOW_ONE).float()
