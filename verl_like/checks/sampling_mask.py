"""Rules on rollout.keep_sampling_mask. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.algorithms.advantages import ADVANTAGES
from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config

_OFF = "or set rollout.keep_sampling_mask=false."


def kept_mask_has_candidates(config: Config, gpus: Gpus) -> Iterator[str]:
    rollout = config.rollout
    if rollout.keep_sampling_mask and not rollout.cuts_candidates:
        yield (
            f"rollout.keep_sampling_mask is true, but rollout.top_p is {rollout.top_p:g} and rollout.top_k is "
            f"{rollout.top_k}, which keep the whole vocabulary. Set rollout.top_p below 1 or rollout.top_k above 0, "
            f"{_OFF}"
        )


def kept_mask_is_of_single_turns(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.rollout.keep_sampling_mask and config.environment.is_used:
        yield (
            f"rollout.keep_sampling_mask is true, but episodes with an environment (environment.path="
            f"{config.environment.path!r}, environment.tools={config.environment.tools!r}) do not record the tokens "
            f"that the engine kept. Leave both empty, {_OFF}"
        )


def every_request_can_report_its_mask(config: Config, gpus: Gpus) -> Iterator[str]:
    """On GPUs vLLM reports the kept tokens of all requests or of none (0.32, input_processor.py)."""
    rollout = config.rollout
    if not rollout.keep_sampling_mask or rollout.backend != "vllm" or gpus.runs_on_gpu(config) is not True:
        return
    expected = "with rollout.keep_sampling_mask=true vLLM on GPUs needs"
    validates = config.validates or config.trainer.val_only
    for section, top_k, is_used in (("rollout", rollout.top_k, True), ("rollout.val", rollout.val.top_k, validates)):
        if top_k <= 0 and is_used:
            yield (
                f"{section}.top_k is {top_k}, but {expected} a limit on the tokens that it reports per position. Set "
                f"{section}.top_k=256, {_OFF}"
            )
    if rollout.val.temperature == 0 and validates:
        yield f"rollout.val.temperature is 0, but {expected} one above 0. Set rollout.val.temperature=1, {_OFF}"
    name = config.algorithm.adv_estimator
    if name in ADVANTAGES and "baseline_rewards" in ADVANTAGES[name].needs:
        yield (
            f"algorithm.adv_estimator is {name}, which draws a greedy response to each prompt, but {expected} a "
            f"temperature above 0. Use another algorithm.adv_estimator, {_OFF}"
        )


SAMPLING_MASK_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    kept_mask_has_candidates,
    kept_mask_is_of_single_turns,
    every_request_can_report_its_mask,
)
