"""PPO, GRPO and their relatives: one synchronous step, from top to bottom."""

from __future__ import annotations

from verl_like.training import stages
from verl_like.training.rollout_trainer import RolloutTrainer
from verl_like.training.step_metrics import Metrics


class PPOTrainer(RolloutTrainer):
    """Trains the actor, and the critic if the advantage needs one, on responses of the newest weights."""

    def step(self, step: int) -> Metrics:
        parts, state = self.parts, self.open_step(step)
        batch = stages.rollout(parts, state)
        stages.sleep(parts)
        for take in stages.LEARNING:
            batch = take(parts, state, batch)
        return self.close_step(state)
