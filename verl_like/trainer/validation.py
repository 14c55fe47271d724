"""Validation: every held-out prompt, its own sampling, metrics per data source."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verl_like.config.schema import Config
from verl_like.data.prompts import Prompt
from verl_like.reward.pool import RewardPool
from verl_like.single_controller.remote_batch import Facts
from verl_like.trainer.generation import VALIDATION_STEP, add_scores, generate, val_sampling
from verl_like.trainer.step_metrics import all_failed
from verl_like.trainer.validation_metrics import ValidationSample, validation_metrics
from verl_like.workers.groups import RolloutGroup


def validate(
    config: Config, prompts: list[Prompt], *, rollout: RolloutGroup, rewards: RewardPool, version: int, samples_path: Path
) -> dict[str, float]:
    """mean@n, pass@n and maj@n of the policy the engines hold; some responses are written to ``samples_path``.

    Raises:
        JudgementError: no response has a score.
    """
    samples: list[ValidationSample] = []
    statuses: list[str] = []
    size = config.data.val_batch_size
    for start in range(0, len(prompts), size):
        chunk = prompts[start : start + size]
        batch = generate(chunk, rollout=rollout, rewards=rewards, n=config.rollout.val.n, sampling=val_sampling(config),
                         step=VALIDATION_STEP, version=version)
        add_scores(batch, rewards)
        if start == 0 and config.trainer.num_samples_to_save:
            rewards.dump(batch, np.arange(min(len(batch), config.trainer.num_samples_to_save)), samples_path)
        samples += _samples(chunk, batch.facts)
        statuses += batch.facts["reward_status"].tolist()
    if "ok" not in statuses:
        raise all_failed(np.array(statuses))
    return validation_metrics(samples, n=config.rollout.val.n)


def _samples(prompts: list[Prompt], facts: Facts) -> list[ValidationSample]:
    sources = [prompts[i].data_source for i in facts["group_id"]]
    rows = zip(facts["uid"], sources, facts["answer"], facts["score"], facts["details"], strict=True)
    return [
        ValidationSample(uid=uid, data_source=source, response=answer, score=None if np.isnan(score) else float(score), details=details)
        for uid, source, answer, score, details in rows
    ]
