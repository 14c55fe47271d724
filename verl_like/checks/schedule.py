"""Rules on schedules that generate while the policy learns. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from verl_like.algorithms.policy_losses import policy_loss
from verl_like.checks.pools import ROLLOUT
from verl_like.config.schema import Config
from verl_like.config.schema.rollout import RolloutConfig
from verl_like.config.schema.trainer import TrainerConfig

SYNC = "sync"


def engines_have_workers_of_their_own(config: Config) -> Iterator[str]:
    if config.trainer.schedule != SYNC and ROLLOUT not in config.cluster.placement:
        yield (
            f"trainer.schedule is {config.trainer.schedule}, but cluster.placement has no pool {ROLLOUT}, so that "
            "engines and training share workers and cannot run at once. Set e.g. cluster.placement={trainer: 1, "
            "rollout: 1}, or trainer.schedule=sync."
        )


def staleness_allows_the_schedule(config: Config) -> Iterator[str]:
    trainer = config.trainer
    if trainer.schedule == "one_step_off" and trainer.max_staleness < 1:
        yield (
            "trainer.schedule is one_step_off, but trainer.max_staleness is 0, which leaves nothing to generate while "
            "the policy learns. Set trainer.max_staleness=1, or trainer.schedule=sync."
        )
    if trainer.pipeline_depth > trainer.max_staleness + 1:
        yield (
            f"trainer.pipeline_depth is {trainer.pipeline_depth}, but trainer.max_staleness={trainer.max_staleness} "
            f"allows {trainer.max_staleness + 1} batches in flight. Raise trainer.max_staleness, or set "
            "trainer.pipeline_depth=0."
        )


def replacements_have_separate_engines(config: Config) -> Iterator[str]:
    usual = RolloutConfig().max_replacements
    if config.rollout.max_replacements != usual and ROLLOUT not in config.cluster.placement:
        yield (
            f"rollout.max_replacements is {config.rollout.max_replacements}, but cluster.placement has no pool "
            f"{ROLLOUT}, so that a lost engine is a lost trainer, too (trainer.max_restarts). Set "
            f"cluster.placement={{trainer: 1, rollout: 1}}, or leave rollout.max_replacements at {usual}."
        )


def options_of_a_schedule_have_it(config: Config) -> Iterator[str]:
    if config.trainer.schedule != SYNC:
        return
    usual = TrainerConfig()
    for name in ("max_staleness", "pipeline_depth"):
        if (value := getattr(config.trainer, name)) != getattr(usual, name):
            yield (
                f"trainer.{name} is {value}, but trainer.schedule=sync learns from the newest weights alone. Set "
                f"trainer.schedule=async, or leave trainer.{name} at {getattr(usual, name)}."
            )
    if config.rollout.on_sync != "keep":
        yield (
            f"rollout.on_sync is {config.rollout.on_sync}, but with trainer.schedule=sync no request runs at a sync. "
            "Set trainer.schedule=async, or leave rollout.on_sync at keep."
        )


def a_repeated_schedule_can_be_followed(config: Config) -> Iterator[str]:
    path, schedule = config.trainer.replay_schedule, config.trainer.schedule
    if not path:
        return
    if schedule == SYNC:
        yield (
            f"trainer.replay_schedule is {path}, but trainer.schedule=sync repeats without a record. Leave "
            "trainer.replay_schedule empty, or set the trainer.schedule of the recorded run."
        )
    elif not Path(path).expanduser().is_file():
        yield (
            f"trainer.replay_schedule={path} does not exist. Give the schedule.jsonl of a run with "
            f"trainer.schedule={schedule}."
        )
    if config.environment.is_used:
        yield (
            "trainer.replay_schedule repeats what engines take, but the answers of environments arrive at other times. "
            "Leave trainer.replay_schedule empty, or train without an environment."
        )


def stale_batches_are_whole(config: Config) -> Iterator[str]:
    if config.trainer.schedule != SYNC and config.algorithm.filter_groups:
        yield (
            f"algorithm.filter_groups draws further batches until one is full, which trainer.schedule="
            f"{config.trainer.schedule} does not do yet. Set algorithm.filter_groups=false, or trainer.schedule=sync."
        )


def stale_losses_have_a_ratio(config: Config) -> Iterator[str]:
    trainer, name = config.trainer, config.actor.policy_loss
    if trainer.schedule != SYNC and trainer.max_staleness > 0 and policy_loss(name).off_policy == "none":
        yield (
            f"actor.policy_loss={name} has no ratio, so it takes stale responses for those of the present policy, but "
            f"trainer.schedule={trainer.schedule} learns from responses up to {trainer.max_staleness} updates old. Set "
            "actor.policy_loss=ppo, or trainer.schedule=sync."
        )


def schedule_warnings(config: Config) -> Iterator[str]:
    """Yield warnings of settings that work but are rarely intended."""
    trainer, name = config.trainer, config.actor.policy_loss
    if trainer.schedule == SYNC or not trainer.max_staleness:
        return
    if policy_loss(name).off_policy == "unclipped":
        yield (
            f"actor.policy_loss={name} does not clip the ratio, and trainer.schedule={trainer.schedule} learns from "
            "stale responses: a few tokens may dominate an update."
        )
    if not config.actor.use_rollout_log_probs and not config.algorithm.rollout_correction.is_on:
        yield (
            f"trainer.schedule={trainer.schedule} learns from stale responses, but the loss compares the policy with "
            "itself before the update, not with the one that sampled. Set actor.use_rollout_log_probs=true, or "
            "algorithm.rollout_correction.level=token."
        )


SCHEDULE_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    engines_have_workers_of_their_own,
    staleness_allows_the_schedule,
    replacements_have_separate_engines,
    options_of_a_schedule_have_it,
    a_repeated_schedule_can_be_followed,
    stale_batches_are_whole,
    stale_losses_have_a_ratio,
)
