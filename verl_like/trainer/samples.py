"""Responses of a step that are kept as text, with what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verl_like.protocol import Array
from verl_like.single_controller.remote_batch import Facts, RemoteBatch
from verl_like.trainer.rewards import Rewards, first_rows

ADVANTAGES = ("advantage", "advantage_mean", "advantage_min", "advantage_max")  # facts of a row


class Samples:
    """Has samples files written.

    Args:
        count: responses of a step; -1 for all.
    """

    def __init__(self, folder: Path, count: int, rewards: Rewards) -> None:
        self._folder, self._count, self._rewards = folder, count, rewards

    def write(self, step: int, scored: RemoteBatch, usable: Array, found: Facts) -> None:
        """Begin to write the first responses of a step.

        Args:
            scored: all rows of the step.
            usable: [B] bool, those that have advantages.
            found: facts of these rows alone; their advantages are written, the others' are null.
        """
        rows = first_rows(scored, self._count)
        if len(rows):
            path = self._folder / f"step_{step}.jsonl"
            self._rewards.dump(scored.with_facts(_of_all(found, usable)), rows, path)


def _of_all(found: Mapping[str, Array], usable: Array) -> Facts:
    """The advantages among these facts of the usable rows, as facts of all rows: NaN for those that have none."""
    facts = {name: np.full(len(usable), np.nan, np.float32) for name in ADVANTAGES if name in found}
    for name, values in facts.items():
        values[usable] = found[name]
    return facts
