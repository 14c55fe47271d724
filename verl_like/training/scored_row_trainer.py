"""Supervised training that also generates responses in validation and scores them (``sft.val_generate``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verl_like.algorithms.roles import needs
from verl_like.config.schema import Config
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.record_limits import RecordLimits, thin_samples
from verl_like.telemetry.trackers import Trackers
from verl_like.training.build import Stack, stack
from verl_like.training.loop import TrainingLoop
from verl_like.training.objectives import AnswerObjective
from verl_like.training.process_metrics import ProcessMetrics
from verl_like.training.row_trainer import VAL_LOSS, Objective, RowTask, RowTrainer
from verl_like.training.samples import Samples
from verl_like.training.step_metrics import Metrics
from verl_like.training.tasks import tokenizer_of
from verl_like.training.validation import validate


class ScoredRowTrainer(RowTrainer):
    """Validates by the loss, and by the scores of responses that the current policy generates.

    Args:
        task: has the prompts of its validation.
        workers: their engines sleep between validations.
    """

    def __init__(
        self,
        task: RowTask,
        objective: Objective,
        workers: Stack,
        samples: Samples,
        config: Config,
        *,
        process_metrics: ProcessMetrics,
    ) -> None:
        super().__init__(task, objective, ranks=workers.devices.world_size, process_metrics=process_metrics)
        self.lower_is_better = config.val_metric == VAL_LOSS
        self._val_prompts, self._workers, self._samples, self._config = task.val_prompts, workers, samples, config

    def validate(self) -> Metrics:
        """Return the loss, and the metrics of ``verl-like train``'s validation.

        The loss comes first: its pass leaves on the accelerator only what is not offloaded, and the engine needs the
        rest.
        """
        step, rollout, found = self.progress.step, self._workers.rollout, super().validate()
        path = self._samples.of_validation(step)
        found |= validate(
            self._config,
            self._val_prompts or (),
            rollout=rollout,
            rewards=self._workers.rewards,
            version=rollout.sync().version,
            samples_path=path,
        )
        rollout.sleep()
        self._samples.validated(step)
        thin_samples(path.parent, RecordLimits(self._config.trainer.max_records_gib).samples)
        return found

    def state(self) -> dict[str, Any]:
        self._workers.rewards.settle()  # validations before a checkpoint are not repeated: write their samples first
        return super().state()

    def close(self) -> None:
        self._samples.show()


@contextmanager
def scored_loop(
    config: Config, task: RowTask, folder: RunFolder, trackers: Trackers
) -> Iterator[tuple[TrainingLoop, Objective]]:
    """Start the workers and scorers of a run with ``sft.val_generate``; yield its loop and its objective."""
    roles = needs(config).roles & {"actor", "rollout", "reward_model"}
    with stack(
        config, tokenizer_of(config), folder, roles=roles, actor_updates=task.steps, critic_updates=0
    ) as workers:
        limits = RecordLimits(config.trainer.max_records_gib)
        process_metrics = ProcessMetrics(folder.path, workers.processes, limits=limits)
        samples = Samples(folder.samples, config.trainer.num_samples_to_save, workers.rewards, trackers, limits)
        objective = AnswerObjective(workers.actor)
        trainer = ScoredRowTrainer(task, objective, workers, samples, config, process_metrics=process_metrics)
        loop = TrainingLoop(
            config,
            trainer,
            folder,
            trackers,
            process_metrics=process_metrics,
            processes=workers.processes,
            total_steps=task.steps,
        )
        yield loop, objective
