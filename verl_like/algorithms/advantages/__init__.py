"""Advantage estimators: from token rewards to advantages.

``ADVANTAGES`` is the list. An entry is called as ``ADVANTAGES[name](inputs, config)``. It also declares the columns
that it needs, whether it compares siblings, and the steps over the whole batch
(:func:`verl_like.algorithms.advantages.batch.batch_advantages`). The functions are imported when they are called.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl_like.algorithms.advantages.estimator import OPTIONAL_COLUMNS, ROW_COLUMNS, TOKEN_COLUMNS, Estimator
from verl_like.algorithms.lookup import Imported, look_up, with_arguments
from verl_like.config.schema import AlgorithmConfig

__all__ = ["ADVANTAGES", "OPTIONAL_COLUMNS", "ROW_COLUMNS", "TOKEN_COLUMNS", "Estimator", "estimator", "estimator_of"]


def _imported(location: str) -> Imported:
    return Imported(f"{__name__}.{location}")


def _by_response(name: str, **more: Any) -> Estimator:
    return Estimator(fn=_imported(f"by_response:{name}"), takes="scores", **more)


def _by_token(name: str, **more: Any) -> Estimator:
    return Estimator(fn=_imported(f"by_token:{name}"), takes="tokens", **more)


def _by_turn(name: str, **more: Any) -> Estimator:
    needs = frozenset({"turns"})
    return Estimator(fn=_imported(f"by_turn:{name}"), takes="tokens", needs=needs, compares_siblings=True, **more)


_TOKEN_PROBS = frozenset({"old_log_probs", "sum_pi_squared"})

ADVANTAGES: dict[str, Estimator] = {
    "a_star_po": _by_response("a_star_po", needs=frozenset({"reward_components"})),
    "flash_reinforce": _by_response("flash_reinforce", final_step=_imported("by_response:subtract_batch_mean")),
    "gae": _by_token("gae", needs=frozenset({"values"}), whiten=True, splits_rewards_by_turn=True),
    "gdpo": _by_response(
        "gdpo",
        needs=frozenset({"reward_components"}),
        compares_siblings=True,
        final_step=_imported("by_response:divide_by_batch_std"),
    ),
    "gigpo": _by_turn("gigpo", splits_rewards_by_turn=True),
    "gpg": _by_response(
        "gpg", compares_siblings=True, final_step=_imported("by_response:scale_for_groups_without_signal")
    ),
    "grpo": _by_response("grpo", compares_siblings=True),
    "grpo_passk": _by_response("grpo_passk", compares_siblings=True),
    "maxrl": _by_response("maxrl", compares_siblings=True),
    "none": _by_response("none"),
    "opo": _by_response("opo", compares_siblings=True),
    "optimal_token_baseline": _by_token("optimal_token_baseline", needs=_TOKEN_PROBS, compares_siblings=True),
    "rae": _by_response("rae", needs=frozenset({"role_baselines"})),
    "reinforce": _by_token("reinforce", splits_rewards_by_turn=True),
    "reinforce_baseline": _by_token("reinforce_baseline", compares_siblings=True, whiten=True),
    "reinforce_plus_plus": _by_token("reinforce_plus_plus", whiten=True, splits_rewards_by_turn=True),
    "reinforce_plus_plus_baseline": _by_response("reinforce_plus_plus_baseline", compares_siblings=True, whiten=True),
    "remax": _by_token("remax", needs=frozenset({"baseline_rewards"})),
    "rloo": _by_response("rloo", compares_siblings=True),
    "tir_optimal_token_baseline": _by_token("tir_optimal_token_baseline", needs=_TOKEN_PROBS, compares_siblings=True),
    "turn_credit": _by_turn("turn_credit"),
}


def estimator(name: str) -> Estimator:
    """Return the estimator that ``algorithm.adv_estimator`` names: one of ``ADVANTAGES``, or a user's ``module:name``.

    A user's estimator is an :class:`Estimator`, or a plain function, which then gets only rewards, mask and groups. The
    result knows its needs but lacks its keyword arguments; to call an estimator, use :func:`estimator_of`.
    """
    by_location = {entry.fn.location: entry for entry in ADVANTAGES.values() if isinstance(entry.fn, Imported)}
    found = by_location.get(name) or look_up(name, ADVANTAGES, kind=Estimator, option="algorithm.adv_estimator")
    if isinstance(found, Estimator):
        return found
    if not callable(found):
        raise ValueError(
            f"algorithm.adv_estimator={name} names a {type(found).__name__}; expected an Estimator or a function."
        )
    return Estimator(fn=found)


def estimator_of(config: AlgorithmConfig) -> Estimator:
    """Return :func:`estimator` with ``algorithm.estimator_kwargs`` bound, ready to be called.

    Raises:
        ValueError: for arguments that the function does not accept, or required ones that are missing.
    """
    found = estimator(config.adv_estimator)
    function = with_arguments(
        found.fn,
        config.estimator_kwargs,
        option=f"algorithm.adv_estimator={config.adv_estimator}",
        kwargs_option="algorithm.estimator_kwargs",
        called_with="inputs, config",
    )
    return found if function is found.fn else replace(found, fn=function)
