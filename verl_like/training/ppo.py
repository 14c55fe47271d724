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
        stages.add_log_probs(parts, state, batch)
        batch = stages.score(parts, state, batch)
        stages.keep_position(parts, state)
        batch = stages.add_advantages(parts, state, batch)
        stages.balance_update(parts, state, batch)
        stages.update_critic(parts, state, batch)
        stages.update_actor(parts, state, batch)
        stages.record_trained(parts, state, batch)
        stages.sync(parts, state, batch)
        return self.close_step(state)
