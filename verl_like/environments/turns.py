"""The turns of the policy that a training row is learned from, for advantages per turn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_like.environments.tree import EpisodeTree, TreeRow
from verl_like.protocol import Array

NO_STATE = -1  # state key of a turn whose environment names no states


@dataclass(frozen=True, kw_only=True, slots=True)
class RowTurns:
    """Turns in the sequence of their tokens; each array is [U].

    Args:
        index: int32, number of the turn in its episode, from 0.
        num_tokens: int32, its true entries in the row's ``response_mask``, which are adjacent among the true ones.
        rewards: float32, what the environment gave for the turn.
        state_keys: int64, hash of the state before the turn, or ``NO_STATE``.
    """

    index: Array
    num_tokens: Array
    rewards: Array
    state_keys: Array


def hashed_state(key: str | None) -> int:
    """Hash the name of a state to 63 bits, equal in every process."""
    if key is None:
        return NO_STATE
    digest = hashlib.blake2b(key.encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def turns_of(tree: EpisodeTree, row: TreeRow, state_keys: Sequence[str | None]) -> RowTurns:
    """Return the turns of a row of ``tree``.

    Args:
        state_keys: name of the state before each turn of the episode; turns after the last have none.
    """
    of_token = row.turn_index[row.response_mask]
    starts = np.flatnonzero(np.diff(of_token, prepend=-1))
    index = of_token[starts]
    keys = [hashed_state(state_keys[turn]) if turn < len(state_keys) else NO_STATE for turn in index.tolist()]
    return RowTurns(
        index=index.astype(np.int32),
        num_tokens=np.diff(starts, append=len(of_token)).astype(np.int32),
        rewards=np.array(tree.turn_rewards(), np.float32)[index],
        state_keys=np.array(keys, np.int64),
    )


def no_turns() -> RowTurns:
    """Return the turns of a row without a sampled token."""
    return RowTurns(
        index=np.zeros(0, np.int32),
        num_tokens=np.zeros(0, np.int32),
        rewards=np.zeros(0, np.float32),
        state_keys=np.zeros(0, np.int64),
    )
