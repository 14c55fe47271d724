"""Assignment of prompts to engines: in advance, or from one queue as engines become free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_like.controller.remote_batch import Facts
from verl_like.protocol import Array


@dataclass(frozen=True, slots=True)
class Assignment:
    """The rows of a batch of prompts that each engine gets.

    Args:
        of_engine: the rows with which each engine starts.
        queue: the rows that wait, in the order in which engines take them.
    """

    of_engine: list[Array]
    queue: Array


def assigned_in_advance(num_prompts: int, engines: int) -> Assignment:
    """Assign every prompt to an engine, round-robin."""
    rows = np.arange(num_prompts)
    return Assignment([rows[engine::engines] for engine in range(engines)], rows[:0])


def assigned_by_queue(order: Array, engines: int, *, most: int) -> Assignment:
    """Assign each engine its share of the prompts, but at most ``most``; the others wait in the queue.

    Prompts that all engines could start at once are assigned in advance, because otherwise the first engine would take
    more than its share.
    """
    first = max(1, min(most, len(order) // engines)) * engines
    return Assignment([order[:first][engine::engines] for engine in range(engines)], order[first:])


class ResponseLengths:
    """Remembers the length of each prompt's responses from its last generation; 100 bytes per prompt."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}  # uid -> tokens of the longest response

    def learn(self, facts: Facts) -> None:
        """Record the lengths of some rows from an engine, which are whole groups."""
        starts = np.flatnonzero(np.r_[True, facts["group_id"][1:] != facts["group_id"][:-1]])
        longest = np.maximum.reduceat(facts["response_tokens"], starts)
        self._tokens.update(zip(facts["uid"][starts].tolist(), longest.tolist(), strict=True))

    def longest_first(self, uids: Array) -> Array:
        """Sort rows by expected response tokens, most first; a prompt without history counts as average."""
        known = [self._tokens.get(uid) for uid in uids.tolist()]
        seen = [tokens for tokens in known if tokens is not None]
        usual = float(np.mean(seen)) if seen else 0.0
        expected = np.array([usual if tokens is None else tokens for tokens in known], float)
        return np.argsort(-expected, kind="stable")
