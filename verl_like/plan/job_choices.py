"""The plan's choices for ``auto`` options of the jobs other than train: those on given rows, eval and generate."""

from __future__ import annotations

from dataclasses import replace

from verl_like.config.schema import Config
from verl_like.plan.choices import with_choices
from verl_like.plan.location import location_of
from verl_like.plan.run_plan import shapes_of
from verl_like.plan.step import planned_config


def for_generation(config: Config) -> Config:
    """Return the configuration with the engine's share of a GPU and its sequences.

    The engine gets what a run of training would leave it. Without known GPUs nothing changes.
    """
    location = location_of(config, is_timed=False)
    if location is None or not location.is_gpu:
        return config
    return with_choices(config, shapes_of(config), location)


def for_given_rows(config: Config, job: str) -> Config:
    """Return the configuration with the logits and tokens of a pass, and the number of recomputed layers.

    Engines of its validations get their share of a GPU and their sequences. Without known GPUs nothing changes.

    Args:
        job: the command, "sft", "dpo" or "rm".
    """
    location = location_of(config, is_timed=False)
    if location is None or not location.is_gpu:
        return config
    planned = planned_config(config, job)
    chosen = with_choices(planned, shapes_of(planned, job=job), location, job=job)
    return replace(
        config,
        model=replace(config.model, gradient_checkpointing=chosen.model.gradient_checkpointing),
        actor=replace(
            config.actor,
            log_prob_chunk_mib=chosen.actor.log_prob_chunk_mib,
            max_tokens_per_micro_batch=chosen.actor.max_tokens_per_micro_batch,
        ),
        rollout=replace(
            config.rollout,
            gpu_memory_utilization=chosen.rollout.gpu_memory_utilization,
            max_num_seqs=chosen.rollout.max_num_seqs,
        ),
    )
