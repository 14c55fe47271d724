"""Supervised training: the warm start of a policy, on the same workers as reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.worker_group import WorkerGroup
from verl_like.data.loader import refuse_other_rows
from verl_like.ops.partition import partition
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Savable
from verl_like.telemetry.ledger import Ledger, stage
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.trackers import Trackers
from verl_like.training.loop import Trainer, TrainingLoop
from verl_like.training.process_metrics import ProcessMetrics
from verl_like.training.progress import Progress
from verl_like.training.step_metrics import Metrics, StepMetrics
from verl_like.training.tasks import SftTask
from verl_like.workers.groups import ActorGroup


class SftTrainer(Trainer):
    """Minimises the mean negative log-prob of the answers, with one optimiser update per step.

    Args:
        task: the rows, at least ``data.train_batch_size``, and the sampler, which selects the rows of a step only by
            the step's number.
        ranks: number of the actor's ranks.
    """

    job = "sft"

    def __init__(self, task: SftTask, actor: ActorGroup, *, ranks: int, process_metrics: ProcessMetrics) -> None:
        super().__init__()
        self._actor, self._ranks, self._process_metrics = actor, ranks, process_metrics
        self._sampler, self._identity = task.sampler, task.identity
        tokens = task.rows.ragged("prompt_ids").lengths + task.rows.ragged("response_ids").lengths
        self._rows = RemoteBatch.put(task.rows, {"tokens": tokens})

    @property
    def learners(self) -> Mapping[str, Savable]:
        return {"actor": self._actor}

    def start(self) -> None:
        self._sampler.load_state_dict({"given": self.progress.step})

    def step(self, step: int) -> Metrics:
        current(Ledger).take()
        metrics = StepMetrics()
        with stage("prompts"):
            batch = self._rows.select(np.array(self._sampler.next_batch()))
            tokens = batch.facts["tokens"]
        with stage("update_actor"):
            metrics.add_mean(self._actor.supervise(batch, partition(tokens, self._ranks)))
        metrics.learnt_tokens = float(tokens.sum())
        metrics.add({"perf/tokens": metrics.learnt_tokens})
        with stage("report"):
            self._process_metrics.ask()
            metrics.add(self._process_metrics.take(step))
        return metrics.finish(current(Ledger).take())

    def state(self) -> dict[str, Any]:
        step = self.progress.step
        return {"step": step, "weight_version": step, "dataset": self._identity}

    def load(self, state: dict[str, Any], path: Path) -> None:
        if "dataset" in state:  # older checkpoints lack it, and continue
            refuse_other_rows(self._identity, checkpoint=state["dataset"])
        self._actor.load(str(path / "actor"), state["weight_version"])
        self.progress = Progress(step=int(state["step"]))


def sft_loop(
    config: Config, task: SftTask, workers: WorkerGroup, folder: RunFolder, *, ranks: int, trackers: Trackers
) -> TrainingLoop:
    """Return the loop of supervised training on workers that have an actor."""
    limits = RecordLimits(config.trainer.max_records_gib)
    process_metrics = ProcessMetrics(folder.path, [workers], limits=limits)
    return TrainingLoop(
        config,
        SftTrainer(task, ActorGroup(workers), ranks=ranks, process_metrics=process_metrics),
        folder,
        trackers,
        process_metrics=process_metrics,
        processes=[workers],
        total_steps=task.steps,
    )
