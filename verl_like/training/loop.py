"""The loop that drives every trainer: resume, validate, take steps, save, and stop cleanly."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import FeedbackError, Interrupt, Interrupted
from verl_like.data.custom_sampler import SamplerError
from verl_like.disk import DiskRefused
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Savable, Saves
from verl_like.telemetry.collapse import CollapseWatch
from verl_like.telemetry.ledger import Ledger, stage
from verl_like.telemetry.startup import Startup
from verl_like.telemetry.trackers import Trackers, read_metrics
from verl_like.training.process_metrics import ProcessMetrics
from verl_like.training.profiling import Profiles
from verl_like.training.progress import Progress
from verl_like.training.step_metrics import Metrics

log = logging.getLogger(__name__)


class Trainer(ABC):
    """One way to train, driven by :class:`TrainingLoop`: a step, and a checkpoint's state apart from the learners.

    Attributes:
        job: name of the command, as a checkpoint records it.
        num_val_prompts: prompts of a validation; 0 if the trainer does not validate.
        lower_is_better: whether the lowest value of ``trainer.best_metric`` is the best.
        progress: state of the run, in which the loop counts steps, seconds, tokens and validations.
    """

    job: str
    num_val_prompts: int = 0
    lower_is_better: bool = False

    def __init__(self) -> None:
        self.progress = Progress()

    @property
    @abstractmethod
    def learners(self) -> Mapping[str, Savable]:
        """Return what a checkpoint saves, by the name of its folder there."""

    @abstractmethod
    def step(self, step: int) -> Metrics:
        """Take the step of this number and return its metrics, with ``time/step_s`` and ``perf/tokens``."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the state of a checkpoint apart from the learners: JSON, with ``step`` and ``weight_version``."""

    @abstractmethod
    def load(self, state: dict[str, Any], path: Path) -> None:
        """Continue from a checkpoint.

        Args:
            state: as :meth:`state` has returned it.
            path: folder of the checkpoint, absolute; a learner's files are in the subfolder of its name.

        Raises:
            ValueError: the checkpoint does not fit this run.
        """

    @property
    def num_in_flight(self) -> int:
        """Return how many prompts of unfinished steps have been drawn."""
        return 0

    def start(self) -> None:  # noqa: B027 (a hook, as the two below)
        """Prepare the first step, after a checkpoint is loaded."""

    def validate(self) -> Metrics:
        """Score the held-out prompts by the current policy."""
        raise NotImplementedError(f"{type(self).__name__} has validation prompts, but no validate().")

    def truncate_after(self, step: int) -> None:  # noqa: B027
        """Drop the records of steps after this one, which are repeated."""

    def close(self) -> None:  # noqa: B027
        """Finish the work that runs in parallel with the steps, after the last one."""


class TrainingLoop:
    """Drives a trainer from the checkpoint that ``trainer.resume`` names to the last step.

    Args:
        process_metrics: reports of the run's processes, which the trainer's steps request.
        processes: the worker groups among them are traced in the steps ``trainer.profile_steps``.
    """

    def __init__(
        self,
        config: Config,
        trainer: Trainer,
        folder: RunFolder,
        trackers: Trackers,
        *,
        process_metrics: ProcessMetrics,
        processes: Sequence[object],
        total_steps: int,
    ) -> None:
        self.config, self.trainer, self.folder, self.trackers = config, trainer, folder, trackers
        self.process_metrics, self.total_steps = process_metrics, total_steps
        self.checkpoints = Checkpoints(folder.checkpoints, config.trainer.max_checkpoints)
        self.saves = Saves(
            self.checkpoints,
            trainer.learners,
            is_async=config.trainer.async_save,
            timeout_s=config.trainer.stage_timeout_s,
        )
        self.profiles = Profiles(folder.profile, processes, config.trainer.profile_steps)
        self.collapse = CollapseWatch()

    @property
    def progress(self) -> Progress:
        return self.trainer.progress

    def run(self) -> Progress:
        """Run to the last step or until Ctrl-C; in both cases the newest state is in a checkpoint on return."""
        self.begin()
        try:
            with self.saves:
                self.take_steps()
        except BaseException:
            with suppress(DiskRefused):  # the error that ends the run is the one to report
                self.process_metrics.write()
            raise
        self.trainer.close()
        self.process_metrics.write_table()
        return self.progress

    def begin(self) -> None:
        """Resume, and prepare the first step."""
        self.resume()
        self.trainer.start()

    def resume(self) -> None:
        """Continue from the checkpoint that ``trainer.resume`` names, if there is one."""
        path = self.checkpoints.find(self.config.trainer.resume)
        if path is None:
            self.truncate_after(-1)  # steps of an earlier start without a checkpoint are repeated
            return
        self.trainer.load(load_state(path), path.absolute())
        if self.checkpoints.holds(path):
            self.saves.step = self.progress.step
            if "jsonl" in self.config.trainer.loggers:
                self.folder.warn_of_lost_metrics(self.progress.step)
            self.checkpoints.mark_best(self.progress.best_step)
        self.truncate_after(self.progress.step)
        self.collapse.restore(read_metrics(self.folder.metrics))
        log.info("continuing from %s", path)

    def truncate_after(self, step: int) -> None:
        """Drop the records of steps after this one, which are repeated."""
        self.trackers.truncate_after(step)
        self.process_metrics.truncate_after(step)
        self.trainer.truncate_after(step)

    def take_steps(self) -> None:
        """Validate, take all remaining steps, and save when due."""
        try:
            if self.is_validation_due():
                current(Startup).now(f"validating on {self.trainer.num_val_prompts} prompts")
                self.trackers.log(self.progress.step, self.validate())
                if self.is_save_due():
                    self.save()
            current(Startup).now("taking the first step")
            while self.progress.step < self.total_steps and not current(Interrupt).is_set():
                with self.profiles.of(self.progress.step + 1):
                    metrics = self.trainer.step(self.progress.step + 1)
                self.finish(metrics)
        except Interrupted as interrupted:
            log.warning(
                "interrupted in %s; the unfinished step is dropped, and its %d prompts are drawn again",
                interrupted,
                self.trainer.num_in_flight,
            )
        except (FeedbackError, SamplerError):  # the policy is that of the last counted step
            self.save_unless_saved()
            self.saves.finish()
            raise
        self.save_unless_saved()

    def finish(self, metrics: Metrics) -> None:
        """Count a step; validate and save if due."""
        self.progress.step += 1
        self.progress.seconds += metrics["time/step_s"]
        self.progress.tokens += int(metrics["perf/tokens"])
        try:
            if self.is_validation_due():
                metrics |= self.validate()
        finally:  # the step counts even if the validation fails
            self.trackers.log(self.progress.step, metrics | self.saves.take_metrics())
        self.collapse.add(self.progress.step, metrics)
        self.saves.check()
        if self.is_save_due():
            self.save()

    def is_validation_due(self) -> bool:
        """Return whether the current policy is due for a validation that has not run, even before an interruption."""
        trainer, step = self.config.trainer, self.progress.step
        if not self.trainer.num_val_prompts or self.progress.last_val_step == step:
            return False
        if step == 0:
            return trainer.val_before_train
        return step == self.total_steps or (trainer.test_freq > 0 and step % trainer.test_freq == 0)

    def validate(self) -> Metrics:
        """Score the held-out prompts; record the first, last and best value."""
        with stage("validation"):
            found = self.trainer.validate()
        metric = self.config.val_metric
        if metric not in found:
            raise FeedbackError(
                f"trainer.best_metric is {metric!r}, but validation gives {sorted(found)}. Choose one of these."
            )
        self.progress.count_validation(found[metric], lower_is_better=self.trainer.lower_is_better)
        seconds = current(Ledger).take()
        return {**found, "time/validation_s": seconds["validation"] + seconds.get("reward_model", 0.0)}

    def is_save_due(self) -> bool:
        """Return whether the current policy is the best so far, or ``save_freq`` steps have passed."""
        every, step = self.config.trainer.save_freq, self.progress.step
        return step > 0 and (self.progress.best_step == step or (every > 0 and step % every == 0))

    def save(self) -> None:
        """Start a checkpoint of the last finished step."""
        with stage("checkpoint"):
            state = {"job": self.trainer.job, **self.trainer.state()}
            self.saves.save(state, is_best=self.progress.best_step == self.progress.step)

    def save_unless_saved(self) -> None:
        """Save the last finished step unless the newest checkpoint is of this step."""
        if self.progress.step != self.saves.step:
            self.save()
