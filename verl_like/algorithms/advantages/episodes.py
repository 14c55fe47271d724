"""Episodes out of their rows: estimators see one response per episode, with the sampled tokens of all its turns.

The sampled tokens of an episode are those of all its rows, turn after turn. So siblings, means and sequences of tokens
are those of episodes, however many rows the chat template has made of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl_like.algorithms.advantages.packed import Responses, sums
from verl_like.algorithms.types import Turns
from verl_like.protocol import Array, DataProto, Ragged

COLUMNS = ("turn_index", "turn_tokens", "turn_rewards", "state_keys")  # of rows, one entry per turn


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeTokens:
    """The sampled tokens of some rows, episode after episode.

    Args:
        order: [S] int64, their positions among all tokens of the rows.
        lengths: [E] int64, sampled tokens of each episode.
        first_row: [E] int64, the first row of each episode.
        turns: their turns, with the environment's own rewards.
    """

    order: Tensor
    lengths: Tensor
    first_row: Tensor
    turns: Turns


def episode_tokens(mask: Ragged, episodes: Array, columns: DataProto) -> EpisodeTokens:
    """Return the sampled tokens of whole episodes.

    Args:
        mask: ``response_mask`` of the rows.
        episodes: [B] int64, ascending; equal for rows of an episode.
        columns: ``COLUMNS`` of the rows.
    """
    index, num_tokens = columns.ragged("turn_index"), columns.ragged("turn_tokens")
    row_of_turn = np.repeat(np.arange(len(mask)), num_tokens.lengths)
    counted = np.bincount(row_of_turn, num_tokens.values, len(mask))
    assert np.array_equal(counted, mask.count_nonzero()), "the tokens of a row's turns are not those of its mask"
    _, first_row, number = np.unique(episodes, return_index=True, return_inverse=True)
    of_turn = number[row_of_turn]
    sequence = np.lexsort((index.values, of_turn))
    lengths = num_tokens.values.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    lengths, starts, of_turn = lengths[sequence], starts[sequence], of_turn[sequence]
    before = np.cumsum(lengths) - lengths
    slots = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return EpisodeTokens(
        order=torch.from_numpy(np.flatnonzero(mask.values)[slots]),
        lengths=torch.from_numpy(np.bincount(of_turn, lengths, len(first_row)).astype(np.int64)),
        first_row=torch.from_numpy(first_row),
        turns=Turns(
            num_turns=torch.from_numpy(np.bincount(of_turn, minlength=len(first_row))),
            num_tokens=torch.from_numpy(lengths),
            rewards=torch.from_numpy(columns.ragged("turn_rewards").values[sequence].astype(np.float64)),
            state_keys=torch.from_numpy(columns.ragged("state_keys").values[sequence]),
        ),
    )


def joined(rows: Responses, found: EpisodeTokens, *, has_turns: bool, splits_rewards: bool, scale: float) -> Responses:
    """Return one response per episode.

    Args:
        rows: responses of the rows; those of an episode have the same score.
        has_turns: whether the result has ``turns``.
        splits_rewards: whether each turn's reward is at its end; the last token then has the rest of the score.
        scale: factor of the turns' rewards, as of the scores.
    """
    turns = replace(found.turns, rewards=found.turns.rewards * scale)
    columns: dict[str, Any] = {
        name: getattr(rows, name)
        for name in ("penalties", "values", "old_log_probs", "ref_log_probs", "rollout_log_probs", "sum_pi_squared")
    }
    first = found.first_row
    return Responses(
        lengths=found.lengths,
        response_mask=torch.ones(len(found.order), dtype=torch.bool),
        scores=rows.scores[first],
        group_ids=rows.group_ids[first],
        baseline_rewards=None if rows.baseline_rewards is None else rows.baseline_rewards[first],
        role_baselines=None if rows.role_baselines is None else rows.role_baselines[first],
        reward_components=None
        if rows.reward_components is None
        else {name: values[first] for name, values in rows.reward_components.items()},
        moved_rewards=_moved(turns, found.lengths) if splits_rewards else None,
        turns=turns if has_turns else None,
        **{name: None if column is None else column[found.order] for name, column in columns.items()},
    )


def _moved(turns: Turns, lengths: Tensor) -> Tensor:
    """Return [S] float64: each turn's reward at its last token, minus their sum at the episode's last token."""
    moved = torch.zeros(int(lengths.sum()), dtype=torch.float64)
    moved[turns.num_tokens.cumsum(0) - 1] = turns.rewards
    has_any = lengths > 0
    moved[lengths.cumsum(0)[has_any] - 1] -= sums(turns.rewards, turns.num_turns)[has_any]
    return moved
