"""Which tokens cost the policy its entropy: ranks of the covariance of log-prob and advantage over a mini-batch."""

from __future__ import annotations

import torch
from torch import Tensor

BELOW_ONE = 1 - 2**-24  # the largest float32 below 1


def covariance_ranks(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """Each token's place by (log_prob - mean) * (advantage - mean) (2505.22617, equation 10), from the top.

    Args:
        log_probs: [K] nats under the old policy, the valid tokens of one mini-batch in any order.
        advantages: [K].

    Returns:
        [K] float32 in [0, 1): the share of the K tokens, this one aside, whose covariance is at least as high. Without
        ties the values are 0/K, 1/K, ..., so ``rank < k`` chooses the top ceil(k K). Ties share the lowest place of
        theirs: a mini-batch without advantages, where all tie, chooses none.
    """
    assert log_probs.isfinite().all() and advantages.isfinite().all(), (
        "log_probs and advantages of valid tokens must be finite"
    )
    # float64: in float32 the mean over a million tokens would be off by more than neighbouring covariances differ.
    log_probs, advantages = log_probs.double(), advantages.double()
    covariances = (log_probs - log_probs.mean()) * (advantages - advantages.mean())
    num_tokens = len(covariances)
    num_lower = torch.searchsorted(covariances.sort().values, covariances)
    return ((num_tokens - 1 - num_lower) / max(num_tokens, 1)).clamp(max=BELOW_ONE).float()
