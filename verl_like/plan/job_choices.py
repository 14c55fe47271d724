"""The plan's choices for ``auto`` options of the jobs that have no whole plan: sft, eval and generate."""

from __future__ import annotations

from dataclasses import replace

from verl_like.config.schema import AlgorithmConfig, Config, RewardConfig
from verl_like.plan.choices import with_choices
from verl_like.plan.location import location_of
from verl_like.plan.run_plan import shapes_of


def for_generation(config: Config) -> Config:
    """Return the configuration with the engine's share of a GPU and its sequences.

    The engine gets what a run of training would leave it. Without known GPUs nothing changes.
    """
    location = location_of(config, is_timed=False)
    if location is None or not location.is_gpu:
        return config
    return with_choices(config, shapes_of(config), location)


def for_supervised_training(config: Config) -> Config:
    """Return the configuration with the logits and tokens of a pass, and the number of recomputed layers.

    They are those of a run whose only model is the policy. Without known GPUs nothing changes.
    """
    location = location_of(config, is_timed=False)
    if location is None or not location.is_gpu:
        return config
    rows = config.data.train_batch_size
    alone = replace(
        config,
        algorithm=AlgorithmConfig(),
        reward=RewardConfig(),
        rollout=replace(config.rollout, n=1),
        actor=replace(config.actor, kl_loss_coef=0.0, mini_batch_size=rows),
    )
    chosen = with_choices(alone, shapes_of(alone), location)
    return replace(
        config,
        model=replace(config.model, gradient_checkpointing=chosen.model.gradient_checkpointing),
        actor=replace(
            config.actor,
            log_prob_chunk_mib=chosen.actor.log_prob_chunk_mib,
            max_tokens_per_micro_batch=chosen.actor.max_tokens_per_micro_batch,
        ),
    )
