"""Responses that a run keeps as text: some of each step with their results, and some of each validation."""

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

CHECK_EVERY = 50  # steps between checks of the files' size
ADVANTAGES = ("advantage", "advantage_mean", "advantage_min", "advantage_max")  # facts of a row


class Samples:
    """Writes samples files, and shows some of their rows in the trackers.

    Files are written in parallel with the steps, so a tracker shows a file when the next one is begun, or at the end.

    Args:
        count: responses of a step; -1 for all.
        limits: older files are thinned out if all together exceed their limit.
    """

    def __init__(
        self, folder: Path, count: int, rewards: Rewards, trackers: Trackers, limits: RecordLimits | None = None
    ) -> None:
        self._folder, self._count, self._rewards, self._trackers = folder, count, rewards, trackers
        self._max_bytes = (limits or RecordLimits()).samples
        self._unshown: list[tuple[str, int, Path]] = []  # (kind, step, file)

    def of_validation(self, step: int) -> Path:
        """Return the file of a validation."""
        return self._folder / f"val_step_{step}.jsonl"

    def validated(self, step: int) -> None:
        """Record that this step's validation writes its file, unless it keeps no responses."""
        self._unshown.append(("validation", step, self.of_validation(step)))

    def write(self, step: int, scored: RemoteBatch, usable: Array, found: Facts) -> None:
        """Start writing the first responses of a step.

        Args:
            scored: all rows of the step.
            usable: [B] bool, rows that have advantages.
            found: facts of these rows only; their advantages are written, the others' are null.
        """
        if step % CHECK_EVERY == 0:
            thin_samples(self._folder, self._max_bytes)
        rows = first_rows(scored, self._count)
        if not len(rows):
            return
        self.show()
        path = self._folder / f"step_{step}.jsonl"
        self._rewards.dump(scored.with_facts(_of_all(found, usable)), rows, path)
        self._unshown.append(("train", step, path))

    def show(self) -> None:
        """Have the trackers show all written files that they have not shown; wait for the writing."""
        unshown, self._unshown = self._unshown, []
        if not unshown or not self._trackers.show_samples:
            return
        self._rewards.settle()
        for of, step, path in unshown:
            if rows := shown_rows(path):
                self._trackers.log_samples(step, of, rows)


def _of_all(found: Mapping[str, Array], usable: Array) -> Facts:
    """Return the advantages of the usable rows as facts of all rows, NaN for rows without one."""
    facts = {name: np.full(len(usable), np.nan, np.float32) for name in ADVANTAGES if name in found}
    for name, values in facts.items():
        values[usable] = found[name]
    return facts
