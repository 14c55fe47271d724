"""Rules on the terms of the actor's loss. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.config.schema import Config


def engine_log_probs_are_over_the_vocabulary(config: Config) -> Iterator[str]:
    rollout = config.rollout
    if rollout.top_p >= 1 and rollout.top_k <= 0:
        return
    for name, is_on in (("off_policy_mask_threshold", config.actor.off_policy_mask_threshold > 0),):
        if is_on:
            yield (
                f"rollout.top_p is {rollout.top_p:g} and rollout.top_k is {rollout.top_k}, but actor.{name} compares "
                "the policy's log-probs with the engine's, which are then over the kept candidates only. Set "
                f"rollout.top_p=1 rollout.top_k=-1, or actor.{name}=0."
            )


LOSS_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (engine_log_probs_are_over_the_vocabulary,)
