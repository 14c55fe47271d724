"""Advantages that follow from scores alone: one number per response, and so a fact of its row."""

from __future__ import annotations

import numpy as np
import torch

from verl_like.algorithms.advantages import estimator_of
from verl_like.algorithms.advantages.batch import row_advantages
from verl_like.algorithms.advantages.groups import Scored, group_index
from verl_like.config.schema import AlgorithmConfig
from verl_like.controller.remote_batch import Facts
from verl_like.protocol import Array
from verl_like.workers.messages import RowRewards


def score_advantages(earned: RowRewards, num_sampled: Array, config: AlgorithmConfig) -> tuple[Facts, dict[str, float]]:
    """Return the facts ``advantage`` and ``has_advantage``, and metrics over tokens.

    ``advantage`` [B] float32 is shared by all tokens of a response; ``has_advantage`` [B] bool is whether it is not
    zero. The rows of an episode are one response, and share its advantage.

    Args:
        num_sampled: [B], tokens of each row that are learned from.
    """
    samples = earned if earned.episodes is None else earned.select(np.flatnonzero(np.diff(earned.episodes, prepend=-1)))
    tokens = num_sampled if earned.episodes is None else np.bincount(earned.episodes, weights=num_sampled)
    responses = Scored(
        torch.from_numpy(samples.rewards).double(),
        torch.from_numpy(tokens.astype(np.int64)),
        group_index(torch.from_numpy(samples.group_ids)),
        {name: torch.from_numpy(values) for name, values in samples.components.items()} or None,
        None if samples.role_baselines is None else torch.from_numpy(samples.role_baselines),
    )
    found: Array = row_advantages(estimator_of(config), responses, config).numpy()
    mean = np.average(found, weights=tokens)
    std = np.sqrt(np.average((found - mean) ** 2, weights=tokens))
    if earned.episodes is not None:
        found = found[earned.episodes]
    facts = {"advantage": found, "has_advantage": found != 0}
    return facts, {"advantages/mean": float(mean), "advantages/std": float(std)}
