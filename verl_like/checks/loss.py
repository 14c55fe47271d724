"""Rules on the terms of the actor's loss. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.config.schema import Config

UNBIASED = ("k1", "k3")  # estimators whose mean over samples of the policy is the KL


def engine_log_probs_are_over_the_vocabulary(config: Config) -> Iterator[str]:
    rollout = config.rollout
    if rollout.top_p >= 1 and rollout.top_k <= 0:
        return
    for name, is_on in (
        ("off_policy_mask_threshold", config.actor.off_policy_mask_threshold > 0),
        ("rollout_kl_coef", config.actor.rollout_kl_coef > 0),
    ):
        if is_on:
            yield (
                f"rollout.top_p is {rollout.top_p:g} and rollout.top_k is {rollout.top_k}, but actor.{name} compares "
                "the policy's log-probs with the engine's, which are then over the kept candidates only. Set "
                f"rollout.top_p=1 rollout.top_k=-1, or actor.{name}=0."
            )


def ratio_weighs_an_unbiased_kl(config: Config) -> Iterator[str]:
    actor = config.actor
    if not actor.weigh_kl_by_ratio:
        return
    if actor.kl_loss_coef == 0:
        yield (
            "actor.weigh_kl_by_ratio is true, but actor.kl_loss_coef is 0, so the loss has no KL. Set "
            "actor.kl_loss_coef=0.001, or actor.weigh_kl_by_ratio=false."
        )
    if actor.kl_loss_type not in UNBIASED:
        yield (
            f"actor.weigh_kl_by_ratio is true, but with actor.kl_loss_type={actor.kl_loss_type} the product does not "
            f"have the gradient of the KL; expected {' or '.join(UNBIASED)}. Set actor.kl_loss_type=k3, or "
            "actor.weigh_kl_by_ratio=false."
        )


LOSS_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    engine_log_probs_are_over_the_vocabulary,
    ratio_weighs_an_unbiased_kl,
)
