"""Validation: every held-out prompt, its own sampling, metrics per data source."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verl_like.config.schema import Config
from verl_like.data.prompts import Prompt
from verl_like.reward.pool import RewardPool
from verl_like.single_controller.remote_batch import Facts
from verl_like.trainer.generation import VALIDATION_STEP, add_scores, generate, val_sampling
from verl_like.trainer.validation_metrics import validation_metrics
from verl_like.workers.groups import RolloutGroup


def validate(
    config: Config, prompts: list[Prompt], *, rollout: RolloutGroup, rewards: RewardPool, version: int, samples_path: Path
) -> dict[str, float]:
    """mean@n, pass@n and maj@n of the policy the engines hold; some responses are written to ``samples_path``."""
    parts: list[Facts] = []
    size = config.data.val_batch_size
    for start in range(0, len(prompts), size):
        chunk = prompts[start : start + size]
        batch = generate(chunk, rollout=rollout, rewards=rewards, n=config.rollout.val.n, sampling=val_sampling(config),
                         step=VALIDATION_STEP, version=version)
        add_scores(batch, rewards)
        if start == 0 and config.trainer.num_samples_to_save:
            rewards.dump(batch, np.arange(min(len(batch), config.trainer.num_samples_to_save)), samples_path)
        facts = {name: batch.facts[name] for name in ("uid", "score", "answer", "reward_status")}
        facts["data_source"] = np.array([chunk[i].data_source for i in batch.facts["group_id"]])
        parts.append(facts)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return validation_metrics(joined, n=config.rollout.val.n)
