"""Responses that a run keeps as text: some of each step, with what became of them, and of each validation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verl_like.controller.remote_batch import Facts, RemoteBatch
from verl_like.protocol import Array
from verl_like.telemetry.record_limits import RecordLimits, thin_samples
from verl_like.telemetry.sample_rows import shown_rows
from verl_like.telemetry.trackers import Trackers
from verl_like.training.rewards import Rewards, first_rows

LOOK_EVERY = 50  # steps between looks at how much room the files take
ADVANTAGES = ("advantage", "advantage_mean", "advantage_min", "advantage_max")  # facts of a row


class Samples:
    """Have samples files written, and have the trackers show some of their rows.

    Writing goes on beside the steps, so a tracker shows a file when the next one is begun, or at the end.

    Args:
        count: responses of a step; -1 for all.
        limits: older files are thinned out where all take more than they may.
    """

    def __init__(
        self, folder: Path, count: int, rewards: Rewards, trackers: Trackers, limits: RecordLimits | None = None
    ) -> None:
        self._folder, self._count, self._rewards, self._trackers = folder, count, rewards, trackers
        self._max_bytes = (limits or RecordLimits()).samples
        self._unshown: list[tuple[str, int, Path]] = []  # (of what, step, file)

    def of_validation(self, step: int) -> Path:
        """Return the file of a validation."""
        return self._folder / f"val_step_{step}.jsonl"

    def validated(self, step: int) -> None:
        """Note that this step's validation has begun to write its file, unless it keeps no responses."""
        self._unshown.append(("validation", step, self.of_validation(step)))

    def write(self, step: int, scored: RemoteBatch, usable: Array, found: Facts) -> None:
        """Begin to write the first responses of a step.

        Args:
            scored: all rows of the step.
            usable: [B] bool, those that have advantages.
            found: facts of these rows alone; their advantages are written, the others' are null.
        """
        if step % LOOK_EVERY == 0:
            thin_samples(self._folder, self._max_bytes)
        rows = first_rows(scored, self._count)
        if not len(rows):
            return
        self.show()
        path = self._folder / f"step_{step}.jsonl"
        self._rewards.dump(scored.with_facts(_of_all(found, usable)), rows, path)
        self._unshown.append(("train", step, path))

    def show(self) -> None:
        """Have the trackers show what was written and not shown yet; wait for the writing."""
        unshown, self._unshown = self._unshown, []
        if not unshown or not self._trackers.show_samples:
            return
        self._rewards.settle()
        for of, step, path in unshown:
            if rows := shown_rows(path):
                self._trackers.log_samples(step, of, rows)


def _of_all(found: Mapping[str, Array], usable: Array) -> Facts:
    """Return the advantages among these facts of the usable rows, as facts of all rows: NaN where a row has none."""
    facts = {name: np.full(len(usable), np.nan, np.float32) for name in ADVANTAGES if name in found}
    for name, values in facts.items():
        values[usable] = found[name]
    return facts
