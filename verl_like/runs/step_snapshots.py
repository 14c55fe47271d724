"""Step snapshots: the inputs of a replay, kept for the newest steps, and permanently for steps that went wrong."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from verl_like.checks.checkpoints import steps_in
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.disk import writing
from verl_like.protocol import EPISODE_ROW, FEATURES, RESPONSE_FEATURES
from verl_like.runs.snapshot_files import METRICS, STATE, versions_here
from verl_like.telemetry.ledger import stage
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.trackers import write_atomically

TEXTS = frozenset({"prompt_text", "reward_inputs"})  # columns that the data set's files contain too
MAX_KEPT = 8  # steps below kept/


class RowWriter(Protocol):
    """Writes rows of a batch in parallel with the steps."""

    def keep(self, batch: RemoteBatch, columns: Sequence[str], folder: Path) -> None:
        """Start writing these columns of the batch into the folder."""

    def settle(self) -> None:
        """Return when all rows are written."""


class StepSnapshots:
    """A folder ``step_N`` for each of the newest steps, with its initial state, its rows and its metrics.

    ``kept/step_N`` holds steps that went wrong: those with a non-finite metric, and the last steps of a start that
    died, which the next start repeats. When their number is limited, the first and the newest of them stay: if
    everything is NaN from some step on, that step shows the cause.

    Args:
        folder: snapshot folder of this run.
        count: number of steps that are kept; 0 keeps none.
        writer: writes the rows.
        limits: size limit of ``kept/``, in addition to ``MAX_KEPT`` steps.
    """

    def __init__(self, folder: Path, count: int, writer: RowWriter, limits: RecordLimits | None = None) -> None:
        self._folder, self._count, self._writer = folder, count, writer
        self._max_kept_bytes = (limits or RecordLimits()).snapshots

    def continue_after(self, step: int) -> None:
        """Keep the steps after this one permanently: they belong to a start that died, and are repeated."""
        for left in steps_in(self._folder):
            if left > step:
                self._keep(left)

    def begin(self, step: int, *, steering: Mapping[str, Any], version: int, loader: Mapping[str, Any]) -> None:
        """Record the inputs of a new step apart from the configuration and the weights.

        All randomness in a step derives from the run's seed and the step's number.

        Args:
            steering: state that the previous step left for it.
            version: version of the engines' weights.
            loader: the state of the data loader.
        """
        if not self._count:
            return
        folder = self._folder / f"step_{step}"
        state = {
            "step": step,
            "steering": dict(steering),
            "weight_version": version,
            "loader": loader,
            "versions": versions_here(),
        }
        with stage("capsule"):
            with writing(folder):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            write_atomically(folder / STATE, json.dumps(state, indent=1), is_durable=False)

    def fill(self, step: int, batch: RemoteBatch) -> None:
        """Start writing the rows of the update; this continues during the updates, until :meth:`settle`."""
        if self._count and len(batch):
            with stage("capsule"):
                columns = frozenset[str]().union(*(layer.columns for layer in batch.layers)) - TEXTS
                columns -= {EPISODE_ROW, FEATURES, RESPONSE_FEATURES}  # a fact; pictures, read again by a replay
                self._writer.keep(batch, sorted(columns), self._folder / f"step_{step}")

    def settle(self) -> None:
        """Return when the rows are written."""
        if self._count:
            with stage("capsule"):
                self._writer.settle()

    def finish(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a finished step, whose rows are written."""
        if not self._count:
            return
        with stage("capsule"):
            text = json.dumps(dict(metrics), indent=1)
            write_atomically(self._folder / f"step_{step}" / METRICS, text, is_durable=False)
            if not all(map(math.isfinite, metrics.values())):
                self._keep(step)
            for old in steps_in(self._folder)[: -self._count]:
                shutil.rmtree(self._folder / f"step_{old}", ignore_errors=True)

    def _keep(self, step: int) -> None:
        kept = self._folder / "kept" / f"step_{step}"
        with writing(kept):
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(exist_ok=True)
            (self._folder / f"step_{step}").rename(kept)
        self._bound_kept(kept.parent)

    def _bound_kept(self, folder: Path) -> None:
        """Remove steps in the middle of those below ``kept/`` until the limits are met."""
        kept = [folder / f"step_{step}" for step in steps_in(folder)]
        num_bytes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in kept}
        while len(kept) > 2 and (len(kept) > MAX_KEPT or sum(map(num_bytes.__getitem__, kept)) > self._max_kept_bytes):
            shutil.rmtree(kept.pop(len(kept) // 2), ignore_errors=True)
