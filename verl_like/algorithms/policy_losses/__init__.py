"""Policy losses. ``POLICY_LOSSES`` is the list; an entry is called as ``POLICY_LOSSES[name](inputs, config)`` with one
micro-batch.

All divide by counts of the whole mini-batch, none looks at a statistic of its own micro-batch: shares of micro-batches
and ranks add up to what one big batch would give. ``clip_ratio_low`` and ``clip_ratio_high`` bound what the method
bounds: the ratio (ppo, clip_cov, gspo, cispo), the log-ratio (gmpo), or the divergence of the token's probability
(dppo_tv, dppo_kl).
"""

from __future__ import annotations

from verl_like.algorithms.lookup import look_up
from verl_like.algorithms.policy_losses.base import PolicyLoss
from verl_like.algorithms.policy_losses.ratio import clip_cov, kl_cov, ppo, sapo
from verl_like.algorithms.policy_losses.score import cispo, dppo_kl, dppo_tv, dro, reinforce
from verl_like.algorithms.policy_losses.sequence import gmpo, gspo

__all__ = ["POLICY_LOSSES", "PolicyLoss", "policy_loss"]

POLICY_LOSSES: dict[str, PolicyLoss] = {
    "ppo": PolicyLoss(fn=ppo),
    "gspo": PolicyLoss(fn=gspo),
    "cispo": PolicyLoss(fn=cispo),
    "sapo": PolicyLoss(fn=sapo),
    "gpg": PolicyLoss(fn=reinforce),  # 2504.02546: the plain policy gradient; what is its own is its advantage
    "clip_cov": PolicyLoss(fn=clip_cov, needs=frozenset({"covariance_rank"})),
    "kl_cov": PolicyLoss(fn=kl_cov, needs=frozenset({"covariance_rank"}), acts_without_advantage=True),
    "gmpo": PolicyLoss(fn=gmpo),
    "dro": PolicyLoss(fn=dro, acts_without_advantage=True),
    "dppo_tv": PolicyLoss(fn=dppo_tv),
    "dppo_kl": PolicyLoss(fn=dppo_kl),
    "reinforce": PolicyLoss(fn=reinforce),
}


def policy_loss(name: str) -> PolicyLoss:
    """The loss that ``actor.policy_loss`` names: one of ``POLICY_LOSSES``, or ``module:name`` of a user's own.

    A user's own is a :class:`PolicyLoss`, or a plain function of (LossInputs, PolicyLossConfig). Of a plain function
    nothing is known: it gets no ``covariance_rank``, and rows without advantage are not left out.
    """
    found = look_up(name, POLICY_LOSSES, knob="actor.policy_loss")
    if isinstance(found, PolicyLoss):
        return found
    if not callable(found):
        raise ValueError(
            f"actor.policy_loss={name} names a {type(found).__name__}; expected a PolicyLoss, "
            f"or a function of (LossInputs, PolicyLossConfig)."
        )
    return PolicyLoss(fn=found, acts_without_advantage=True)
