"""Per-token estimates of KL(policy, ref) from samples of the policy (http://joschu.net/blog/kl-approx.html)."""

from __future__ import annotations

import torch
from torch import Tensor

# exp(20) is 4.9e8: beyond any plausible ratio, far below the overflow of float32 at exp(88).
MAX_LOG_RATIO = 20.0


def safe_exp(log_ratio: Tensor) -> Tensor:
    """Return exp up to ``MAX_LOG_RATIO``, and its tangent beyond: finite, with a gradient of the right sign."""
    inside = log_ratio.clamp(max=MAX_LOG_RATIO)
    return inside.exp() * (1 + (log_ratio - MAX_LOG_RATIO).clamp(min=0))


def kl(log_probs: Tensor, ref_log_probs: Tensor, kind: str) -> Tensor:
    """Return the KL in nats per token, with the shape of the inputs, differentiable in ``log_probs``.

    With d = log_probs - ref_log_probs:

    - ``k1``: d. Unbiased and noisy; its gradient averages to zero, so it belongs in the reward, not in a loss.
    - ``k2``: d^2 / 2. Biased, low variance.
    - ``k3``: exp(-d) - 1 + d. Unbiased, never negative; beyond 20 nats exp continues as its tangent.
    - ``abs``: |d|.
    - ``k1+``, ``k2+``, ``k3+``, ``abs+``: straight-through, the value of the estimator with the gradient of k2, which
      is d. On samples of the policy itself d * grad log_probs averages to the gradient of KL(policy, ref). No other
      gradient does.
    """
    if kind.endswith("+"):
        value, carrier = kl(log_probs, ref_log_probs, kind[:-1]), kl(log_probs, ref_log_probs, "k2")
        return value.detach() + (carrier - carrier.detach())
    difference = log_probs - ref_log_probs
    if kind == "k1":
        return difference
    if kind == "k2":
        return 0.5 * difference.square()
    if kind == "k3":
        # expm1 keeps the quadratic shape near zero, where exp(-d) - 1 + d would round to zero.
        near = torch.expm1(-difference.clamp(-1, 1)) + difference
        return torch.where(difference.abs() < 1, near, safe_exp(-difference) - 1 + difference)
    if kind == "abs":
        return difference.abs()
    raise ValueError(
        f"the KL estimator is {kind!r}; expected k1, k2, k3 or abs, or one of them with a + for the gradient of k2."
    )


def kl_penalties(log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor, coef: float, kind: str) -> Tensor:
    """Return the KL penalty of each token, to be subtracted from the rewards: ``coef`` times its KL, zero outside the
    mask.

    All arguments have one shape. ``log_probs`` are those of the policy that sampled the tokens.
    """
    return torch.where(mask, coef * kl(log_probs, ref_log_probs, kind), 0.0)
