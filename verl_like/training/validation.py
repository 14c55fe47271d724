"""Validation: every held-out prompt, its own sampling, metrics per data source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from verl_like.config.schema import Config
from verl_like.controller.remote_batch import Facts
from verl_like.data.prompts import Prompt
from verl_like.protocol import last_rows
from verl_like.reward.scores import Scores
from verl_like.training.generation import generate, put_prompts, val_sampling
from verl_like.training.rewards import Rewards, first_rows
from verl_like.training.validation_metrics import ValidationSample, validation_metrics
from verl_like.training.validation_scores import write_scores
from verl_like.workers.groups import Generator
from verl_like.workers.samples import VALIDATION_STEP


def validate(
    config: Config, prompts: Sequence[Prompt], *, rollout: Generator, rewards: Rewards, version: int, samples_path: Path
) -> dict[str, float]:
    """Return mean@n, pass@n and maj@n of the policy that the engines hold.

    Some responses are written to ``samples_path`` as text. The scores of all go to ``<its stem>.scores.parquet`` next
    to it.

    Raises:
        FeedbackError: too many responses have no score.
    """
    samples: list[ValidationSample] = []
    size = config.data.val_batch_size
    for start in range(0, len(prompts), size):
        chunk = prompts[start : start + size]
        scoring = rewards.open()
        batch = generate(
            put_prompts(chunk),
            rollout=rollout,
            begin=scoring.begin,
            n=config.rollout.val.n,
            sampling=val_sampling(config),
            step=VALIDATION_STEP,
            version=version,
        )
        scores = scoring.scores(batch)
        num_to_save = config.trainer.num_samples_to_save
        if num_to_save < 0 or (num_to_save > 0 and start == 0):
            rewards.dump(
                batch.with_facts(scores.facts), first_rows(batch, num_to_save), samples_path, appends=start > 0
            )
        samples += _samples(chunk, batch.facts, scores)
    write_scores(samples, samples_path.with_suffix(".scores.parquet"))
    return validation_metrics(samples, n=config.rollout.val.n)


def _samples(prompts: Sequence[Prompt], facts: Facts, scores: Scores) -> list[ValidationSample]:
    """Return one sample per episode, with the response and the tokens of its last row."""
    return [
        ValidationSample(
            uid=facts["uid"][i],
            data_source=prompts[facts["group_id"][i]].data_source,
            response=scores.answer[i],
            score=None if np.isnan(scores.score[i]) else float(scores.score[i]),
            details=scores.details[i],
            sample=int(facts["sample"][i]),
            reward_status="ok" if scores.failure[i] is None else scores.failure[i].status,
            failure=None if scores.failure[i] is None else scores.failure[i].message,
            finish_reason=facts["finish_reason"][i],
            response_tokens=int(facts["response_tokens"][i]),
        )
        for i in np.arange(len(scores))[last_rows(facts)].tolist()
    ]
