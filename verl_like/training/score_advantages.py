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


def score_advantages(
    earned: RowRewards, response_tokens: Array, config: AlgorithmConfig
) -> tuple[Facts, dict[str, float]]:
    """Return the facts ``advantage`` and ``has_advantage``, and metrics over tokens.

    ``advantage`` [B] float32 is shared by all tokens of a response; ``has_advantage`` [B] bool is whether it is not
    zero.

    Args:
        response_tokens: [B], all chosen by the policy.
    """
    responses = Scored(
        torch.from_numpy(earned.rewards).double(),
        torch.from_numpy(response_tokens.astype(np.int64)),
        group_index(torch.from_numpy(earned.group_ids)),
        {name: torch.from_numpy(values) for name, values in earned.components.items()} or None,
    )
    found: Array = row_advantages(estimator_of(config), responses, config).numpy()
    mean = np.average(found, weights=response_tokens)
    std = np.sqrt(np.average((found - mean) ** 2, weights=response_tokens))
    facts = {"advantage": found, "has_advantage": found != 0}
    return facts, {"advantages/mean": float(mean), "advantages/std": float(std)}
