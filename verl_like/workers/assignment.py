"""Which engine generates for which prompts: dealt in advance, or taken from one queue as engines get free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_like.controller.remote_batch import Facts
from verl_like.protocol import Array


@dataclass(frozen=True, slots=True)
class Deal:
    """Rows of a batch of prompts.

    Args:
        of_engine: the rows that each engine begins with.
        queue: the rows that wait, in the order in which engines take them.
    """

    of_engine: list[Array]
    queue: Array


def in_advance(num_prompts: int, engines: int) -> Deal:
    """Every prompt is some engine's, in turn."""
    rows = np.arange(num_prompts)
    return Deal([rows[engine::engines] for engine in range(engines)], rows[:0])


def by_queue(order: Array, engines: int, *, most: int) -> Deal:
    """Each engine begins with its share of the prompts, but not with more than ``most``.

    What all could begin with at once is dealt, since the first engine to be there would take more than its share.
    """
    first = max(1, min(most, len(order) // engines)) * engines
    return Deal([order[:first][engine::engines] for engine in range(engines)], order[first:])


class ResponseLengths:
    """How long the responses to each prompt were when it was last generated for; a hundred bytes a prompt."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}  # by uid, of the longest response

    def learn(self, facts: Facts) -> None:
        """Look at rows as they come from an engine, which are whole groups."""
        starts = np.flatnonzero(np.r_[True, facts["group_id"][1:] != facts["group_id"][:-1]])
        longest = np.maximum.reduceat(facts["response_tokens"], starts)
        self._tokens.update(zip(facts["uid"][starts].tolist(), longest.tolist(), strict=True))

    def longest_first(self, uids: Array) -> Array:
        """Rows by the tokens to expect of each, most first; what was never seen is taken for one like the others."""
        known = [self._tokens.get(uid) for uid in uids.tolist()]
        seen = [tokens for tokens in known if tokens is not None]
        usual = float(np.mean(seen)) if seen else 0.0
        expected = np.array([usual if tokens is None else tokens for tokens in known], float)
        return np.argsort(-expected, kind="stable")
