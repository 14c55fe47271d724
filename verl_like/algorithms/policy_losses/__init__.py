"""Policy losses. ``POLICY_LOSSES`` is the list; an entry's function returns the loss of each token of one micro-batch.

Padding, rollout-correction weights, aggregation and the means of metrics are the same for all and applied by the caller
(``actor_loss.py``). No loss reads a statistic of the micro-batch: shares of micro-batches and ranks sum to the value of
one big batch. ``clip_ratio_low`` and ``clip_ratio_high`` bound the quantity that the method bounds: the ratio (ppo,
clip_cov, gspo, cispo), the log-ratio (gmpo), or the divergence of the token's probability (dppo_tv, dppo_kl). The
functions are imported when a loss is built.
"""

from __future__ import annotations

from dataclasses import replace

from verl_like.algorithms.lookup import Imported, look_up, with_arguments
from verl_like.algorithms.policy_losses.entry import PolicyLoss
from verl_like.config.schema import PolicyLossConfig

__all__ = ["POLICY_LOSSES", "PolicyLoss", "policy_loss", "policy_loss_of"]


def _imported(location: str) -> Imported:
    return Imported(f"{__name__}.{location}")


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "ppo": PolicyLoss(fn=_imported("ratio:ppo")),
    "gspo": PolicyLoss(fn=_imported("sequence:gspo")),
    "cispo": PolicyLoss(fn=_imported("score:cispo")),
    "sapo": PolicyLoss(fn=_imported("ratio:sapo")),
    # 2504.02546: the plain policy gradient; only its advantage is special.
    "gpg": PolicyLoss(fn=_imported("score:reinforce"), off_policy="none"),
    "clip_cov": PolicyLoss(fn=_imported("ratio:clip_cov"), needs=frozenset({"covariance_rank"})),
    "kl_cov": PolicyLoss(
        fn=_imported("ratio:kl_cov"),
        needs=frozenset({"covariance_rank"}),
        acts_without_advantage=True,
        off_policy="unclipped",
    ),
    "gmpo": PolicyLoss(fn=_imported("sequence:gmpo")),
    "a_star_po": PolicyLoss(
        fn=_imported("sequence:a_star_po"),
        needs=frozenset({"ref_log_probs"}),
        acts_without_advantage=True,
        off_policy="none",
    ),
    "vespo": PolicyLoss(fn=_imported("sequence:vespo")),
    "dro": PolicyLoss(fn=_imported("score:dro"), acts_without_advantage=True, off_policy="unclipped"),
    "dppo_tv": PolicyLoss(fn=_imported("score:dppo_tv")),
    "dppo_kl": PolicyLoss(fn=_imported("score:dppo_kl")),
    "reinforce": PolicyLoss(fn=_imported("score:reinforce"), off_policy="none"),
}


def policy_loss(name: str) -> PolicyLoss:
    """Return the loss that ``actor.policy_loss`` names: one of ``POLICY_LOSSES``, or a user's ``module:name``.

    A user's loss is a :class:`PolicyLoss`, or a plain function of (LossInputs, PolicyLossConfig). For a plain function
    the defaults are safe: it gets no ``covariance_rank``, and rows without advantage are not left out. To call a loss,
    use :func:`policy_loss_of`.
    """
    found = look_up(name, POLICY_LOSSES, kind=PolicyLoss, option="actor.policy_loss")
    if isinstance(found, PolicyLoss):
        return found
    if not callable(found):
        raise ValueError(
            f"actor.policy_loss={name} names a {type(found).__name__}; expected a PolicyLoss, "
            f"or a function of (LossInputs, PolicyLossConfig)."
        )
    return PolicyLoss(fn=found, acts_without_advantage=True)


def policy_loss_of(config: PolicyLossConfig) -> PolicyLoss:
    """Return :func:`policy_loss` with ``actor.policy_loss_kwargs`` bound, ready to be called.

    Raises:
        ValueError: for arguments that the function does not accept, or required ones that are missing.
    """
    found = policy_loss(config.policy_loss)
    function = with_arguments(
        found.fn,
        config.policy_loss_kwargs,
        option=f"actor.policy_loss={config.policy_loss}",
        kwargs_option="actor.policy_loss_kwargs",
        called_with="inputs, config",
    )
    return found if function is found.fn else replace(found, fn=function)
