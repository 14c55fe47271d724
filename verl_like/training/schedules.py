"""The trainers by the schedule of their steps."""

from __future__ import annotations

from verl_like.training.async_trainer import AsyncTrainer
from verl_like.training.one_step_off import OneStepOffTrainer
from verl_like.training.ppo import PPOTrainer
from verl_like.training.rollout_trainer import RolloutTrainer

SCHEDULES: dict[str, type[RolloutTrainer]] = {
    "sync": PPOTrainer,
    "one_step_off": OneStepOffTrainer,
    "async": AsyncTrainer,
}
