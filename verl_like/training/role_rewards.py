"""Baselines of roles in a step: each row gets that of its role."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verl_like.algorithms.role_baselines import moved_baselines, role_means
from verl_like.config.schema import AlgorithmConfig
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.loader import PromptLoader
from verl_like.data.row_role import row_role
from verl_like.protocol import last_rows
from verl_like.training.step_state import StepState
from verl_like.workers.messages import RowRewards


def with_role_baselines(
    earned: RowRewards, batch: RemoteBatch, state: StepState, *, loader: PromptLoader, config: AlgorithmConfig
) -> RowRewards:
    """Return the rewards with the baseline of each row's role; record the mean reward of each role in ``state``.

    The baseline is that after this step's move, as in the paper (docs/algorithms.md). An episode counts once, whatever
    the number of its rows.

    Args:
        loader: has given the prompts of the rows.
    """
    roles = np.array([row_role(loader.prompt(uid), config.rae_role_key) for uid in batch.facts["uid"].tolist()])
    samples = last_rows(batch.facts)
    state.role_means = role_means(roles[samples].tolist(), earned.rewards[samples].tolist())
    baselines = moved_baselines(state.steering.role_baselines, state.role_means, decay=config.rae_decay)
    state.metrics.add({f"reward/role_baseline/{role}": baselines[role] for role in state.role_means})
    return replace(earned, role_baselines=np.array([baselines[role] for role in roles.tolist()]))
