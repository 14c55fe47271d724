"""Advantage estimators: token rewards to advantages.

``ADVANTAGES`` is the list. An entry is called as ``ADVANTAGES[name](inputs, config)`` and says besides what it needs:
the columns, whether it compares siblings, and what is left to do in sight of the whole batch
(:func:`batch_advantages`).
"""

from __future__ import annotations

from verl_like.algorithms.advantages.by_response import (
    divide_by_batch_std,
    flash_reinforce,
    gdpo,
    gpg,
    grpo,
    grpo_passk,
    less_batch_mean,
    opo,
    reinforce_plus_plus_baseline,
    rloo,
    scale_for_silent_groups,
)
from verl_like.algorithms.advantages.by_token import (
    gae,
    optimal_token_baseline,
    reinforce,
    reinforce_baseline,
    reinforce_plus_plus,
    remax,
    tir_optimal_token_baseline,
)
from verl_like.algorithms.advantages.estimator import (
    OPTIONAL_COLUMNS,
    ROW_COLUMNS,
    TOKEN_COLUMNS,
    Estimator,
    batch_advantages,
)
from verl_like.algorithms.advantages.whitening import Moments, whiten_stats, whitened
from verl_like.algorithms.lookup import look_up

__all__ = [
    "ADVANTAGES",
    "OPTIONAL_COLUMNS",
    "ROW_COLUMNS",
    "TOKEN_COLUMNS",
    "Estimator",
    "Moments",
    "batch_advantages",
    "estimator",
    "whiten_stats",
    "whitened",
]

_TOKEN_PROBS = frozenset({"old_log_probs", "sum_pi_squared"})

ADVANTAGES: dict[str, Estimator] = {
    "flash_reinforce": Estimator(fn=flash_reinforce, final_step=less_batch_mean),
    "gae": Estimator(fn=gae, needs=frozenset({"values"}), whiten=True),
    "gdpo": Estimator(
        fn=gdpo, needs=frozenset({"reward_components"}), compares_siblings=True, final_step=divide_by_batch_std
    ),
    "gpg": Estimator(fn=gpg, compares_siblings=True, final_step=scale_for_silent_groups),
    "grpo": Estimator(fn=grpo, compares_siblings=True),
    "grpo_passk": Estimator(fn=grpo_passk, compares_siblings=True),
    "opo": Estimator(fn=opo, compares_siblings=True),
    "optimal_token_baseline": Estimator(fn=optimal_token_baseline, needs=_TOKEN_PROBS, compares_siblings=True),
    "reinforce": Estimator(fn=reinforce),
    "reinforce_baseline": Estimator(fn=reinforce_baseline, compares_siblings=True, whiten=True),
    "reinforce_plus_plus": Estimator(fn=reinforce_plus_plus, whiten=True),
    "reinforce_plus_plus_baseline": Estimator(fn=reinforce_plus_plus_baseline, compares_siblings=True, whiten=True),
    "remax": Estimator(fn=remax, needs=frozenset({"baseline_rewards"})),
    "rloo": Estimator(fn=rloo, compares_siblings=True),
    "tir_optimal_token_baseline": Estimator(fn=tir_optimal_token_baseline, needs=_TOKEN_PROBS, compares_siblings=True),
}


def estimator(name: str) -> Estimator:
    """The estimator that ``algorithm.adv_estimator`` names: one of ``ADVANTAGES``, or ``module:name`` of a user's own.

    A user's own is an :class:`Estimator`, or a plain function, which then gets rewards, mask and groups only.
    """
    found = look_up(name, ADVANTAGES, knob="algorithm.adv_estimator")
    if isinstance(found, Estimator):
        return found
    if not callable(found):
        raise ValueError(
            f"algorithm.adv_estimator={name} names a {type(found).__name__}; expected an Estimator or a function."
        )
    return Estimator(fn=found)
