"""The stages of a step after its rollout: what PPO, GRPO and their relatives learn from a batch, on any schedule."""

from __future__ import annotations

from verl_like.controller.remote_batch import RemoteBatch
from verl_like.training import stages
from verl_like.training.parts import StepParts
from verl_like.training.step_state import StepState


def learn(parts: StepParts, state: StepState, batch: RemoteBatch) -> None:
    """Update the policy, and the critic if there is one, and send the new weights to the engines."""
    stages.add_log_probs(parts, state, batch)
    batch = stages.score(parts, state, batch)
    stages.keep_position(parts, state)
    batch = stages.add_advantages(parts, state, batch)
    stages.balance_update(parts, state, batch)
    stages.update_critic(parts, state, batch)
    stages.update_actor(parts, state, batch)
    stages.record_trained(parts, state, batch)
    stages.sync(parts, state, batch)
