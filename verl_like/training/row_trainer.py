"""Training on given rows: answers and preferences, on the same workers as reinforcement learning."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.worker_group import WorkerGroup
from verl_like.data.loader import refuse_other_rows
from verl_like.data.prompts import PromptDataset
from verl_like.data.samplers import EpochSampler
from verl_like.ops.partition import partition
from verl_like.protocol import Array, DataProto
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Savable
from verl_like.telemetry.ledger import Ledger, stage
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.trackers import Trackers
from verl_like.training.loop import Trainer, TrainingLoop
from verl_like.training.process_metrics import ProcessMetrics
from verl_like.training.progress import Progress
from verl_like.training.step_metrics import Metrics, StepMetrics

Reports = list[dict[str, float]]
VAL_LOSS = "val/loss"


@dataclass(frozen=True, kw_only=True, slots=True)
class RowTask:
    """The rows of a run.

    Args:
        rows: ``rows_per_item`` neighbours for each item.
        sampler: selects the items of a step only by the step's number.
        val_rows: held-out items; None if the run does not validate.
        rows_per_item: 1 for a prompt with a response, 2 for a pair.
        val_prompts: prompts of the held-out rows, if validation also generates.
    """

    rows: DataProto
    sampler: EpochSampler
    steps: int
    identity: dict[str, Any]
    val_rows: DataProto | None = None
    rows_per_item: int = 1
    val_prompts: PromptDataset | None = None


class Objective(Protocol):
    """The objective of a job that trains on given rows.

    Attributes:
        job: name of the command.
        learners: what a checkpoint saves, by the name of its folder there.
        val_metric: the metric of :meth:`validate` that selects the best checkpoint: the highest value, or the lowest of
            ``VAL_LOSS``.
    """

    job: str
    val_metric: str

    @property
    def learners(self) -> Mapping[str, Savable]: ...

    def prepare(self, rows: DataProto, batch: RemoteBatch, mini_batches: Iterable[Array]) -> None:
        """Add the facts that updates and validations read to the batch with these rows, before anything is learnt.

        Args:
            mini_batches: the rows of each update or validation, in their order there.
        """

    def update(self, batch: RemoteBatch, parts: Sequence[Array]) -> Reports:
        """Make one optimiser update on the batch and return each rank's metrics."""

    def validate(self, batch: RemoteBatch, parts: Sequence[Array]) -> Metrics:
        """Return metrics ``val/...`` of the current model on the batch."""

    def load(self, path: Path, version: int) -> None:
        """Read the learners' state from a checkpoint."""

    def export(self, path: Path) -> None:
        """Write the model as a Hugging Face folder."""


class RowTrainer(Trainer):
    """Takes one optimiser update on given rows per step.

    Args:
        task: at least ``data.train_batch_size`` items.
        ranks: number of ranks that learn.
    """

    def __init__(self, task: RowTask, objective: Objective, *, ranks: int, process_metrics: ProcessMetrics) -> None:
        super().__init__()
        self.job = objective.job
        self._objective, self._ranks, self._process_metrics = objective, ranks, process_metrics
        self._sampler, self._identity, self._rows_per_item = task.sampler, task.identity, task.rows_per_item
        self.lower_is_better = objective.val_metric == VAL_LOSS
        self._rows = self._prepared(task.rows, step_rows(task))
        self._val_rows = None
        if task.val_rows is not None:
            self._val_rows = self._prepared(task.val_rows, [np.arange(len(task.val_rows))])
        self.num_val_prompts = 0 if task.val_rows is None else len(task.val_rows) // task.rows_per_item

    def _prepared(self, rows: DataProto, mini_batches: Iterable[Array]) -> RemoteBatch:
        batch = put(rows)
        self._objective.prepare(rows, batch, mini_batches)
        return batch

    @property
    def learners(self) -> Mapping[str, Savable]:
        return self._objective.learners

    def start(self) -> None:
        self._sampler.load_state_dict({"given": self.progress.step})

    def step(self, step: int) -> Metrics:
        current(Ledger).take()
        metrics = StepMetrics()
        with stage("prompts"):
            items = np.array(self._sampler.next_batch())
            batch = self._rows.select(rows_of(items, self._rows_per_item))
        with stage("update_actor"):
            metrics.add_mean(self._objective.update(batch, self._parts(batch)))
        metrics.learnt_tokens = float(batch.facts["tokens"].sum())
        metrics.add({"perf/tokens": metrics.learnt_tokens, "progress/epoch": step / self._sampler.batches_per_epoch})
        with stage("report"):
            self._process_metrics.ask()
            metrics.add(self._process_metrics.take(step))
        return metrics.finish(current(Ledger).take())

    def validate(self) -> Metrics:
        assert self._val_rows is not None, "this run has no held-out rows"
        return self._objective.validate(self._val_rows, self._parts(self._val_rows))

    def _parts(self, batch: RemoteBatch) -> list[Array]:
        """Assign whole items to the ranks, with equal tokens."""
        tokens = batch.facts["tokens"].reshape(-1, self._rows_per_item).sum(1)
        return [rows_of(items, self._rows_per_item) for items in partition(tokens, self._ranks)]

    def state(self) -> dict[str, Any]:
        step, progress = self.progress.step, self.progress
        return {
            "step": step,
            "weight_version": step,
            "dataset": self._identity,
            "best": progress.best if progress.best_step > 0 else None,
            "best_step": progress.best_step,
            "last_val_step": progress.last_val_step,
        }

    def load(self, state: dict[str, Any], path: Path) -> None:
        if "dataset" in state:  # older checkpoints lack it, and continue
            refuse_other_rows(self._identity, checkpoint=state["dataset"])
        self._objective.load(path, state["weight_version"])
        self.progress = Progress(step=int(state["step"]))
        if state.get("best") is not None:
            self.progress.best, self.progress.best_step = state["best"], state["best_step"]
        self.progress.last_val_step = state.get("last_val_step", -1)


def put(rows: DataProto) -> RemoteBatch:
    """Return the batch of these rows; the driver keeps the numbers of tokens of each row and of its learnt ones."""
    facts = {
        "tokens": rows.ragged("prompt_ids").lengths + rows.ragged("response_ids").lengths,
        "learnt_tokens": rows.ragged("response_mask").count_nonzero(),
        **({"is_chosen": np.asarray(rows["is_chosen"])} if "is_chosen" in rows.columns else {}),
    }
    return RemoteBatch.put(rows, facts)


def step_rows(task: RowTask) -> Iterator[Array]:
    """Yield the rows of each step of the run."""
    sampler = copy.copy(task.sampler)
    sampler.load_state_dict({"given": 0})
    for _ in range(task.steps):
        yield rows_of(np.array(sampler.next_batch()), task.rows_per_item)


def rows_of(items: Array, rows_per_item: int) -> Array:
    """Return the rows of these items, in their order."""
    rows: Array = (items[:, None] * rows_per_item + np.arange(rows_per_item)).ravel()
    return rows


def row_loop(
    config: Config,
    task: RowTask,
    objective: Objective,
    workers: WorkerGroup,
    folder: RunFolder,
    *,
    ranks: int,
    trackers: Trackers,
) -> TrainingLoop:
    """Return the loop of a job that learns from rows."""
    limits = RecordLimits(config.trainer.max_records_gib)
    process_metrics = ProcessMetrics(folder.path, [workers], limits=limits)
    return TrainingLoop(
        config,
        RowTrainer(task, objective, ranks=ranks, process_metrics=process_metrics),
        folder,
        trackers,
        process_metrics=process_metrics,
        processes=[workers],
        total_steps=task.steps,
    )
