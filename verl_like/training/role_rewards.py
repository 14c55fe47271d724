"""Baselines of roles in a step: each row gets that of its role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from verl_like.algorithms.role_baselines import moved_baselines, role_means
from verl_like.algorithms.roles import needs
from verl_like.config.schema import Config
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.prompts import Prompt
from verl_like.data.row_names import RowNames, row_role
from verl_like.protocol import last_rows
from verl_like.training.step_state import StepState
from verl_like.workers.messages import RowRewards


def roles_of(prompts: Iterable[Prompt], config: Config) -> RowNames | None:
    """Return the role of each prompt; None if the estimator reads no baselines of roles.

    Raises:
        ValueError: as :func:`~verl_like.data.row_names.row_role`.
    """
    if not needs(config).role_baselines:
        return None
    return RowNames(prompts, partial(row_role, key=config.algorithm.rae_role_key))


def with_role_baselines(
    earned: RowRewards, batch: RemoteBatch, state: StepState, roles_of_prompts: RowNames, *, decay: float
) -> RowRewards:
    """Return the rewards with the baseline of each row's role; record the mean reward of each role in ``state``.

    The baseline is that after this step's move, as in the paper (docs/algorithms.md). An episode counts once, whatever
    the number of its rows.

    Args:
        roles_of_prompts: the role of each prompt.
        decay: ``algorithm.rae_decay``.
    """
    roles = roles_of_prompts.of(batch.facts["uid"])
    samples = last_rows(batch.facts)
    state.role_means = role_means(roles[samples].tolist(), earned.rewards[samples].tolist())
    baselines = moved_baselines(state.steering.role_baselines, state.role_means, decay=decay)
    state.metrics.add({f"reward/role_baseline/{role}": baselines[role] for role in state.role_means})
    return replace(earned, role_baselines=np.array([baselines[role] for role in roles.tolist()]))
