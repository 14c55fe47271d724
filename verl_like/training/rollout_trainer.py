"""Shared parts of trainers that generate: opening and closing steps, validation, and the state in a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import Prompt
from verl_like.plan.run_plan import RunPlan
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Savable
from verl_like.telemetry.ledger import Ledger
from verl_like.telemetry.startup import Startup
from verl_like.telemetry.trackers import Trackers
from verl_like.training.build import Stack
from verl_like.training.loop import Trainer, TrainingLoop
from verl_like.training.parts import StepParts, parts_of
from verl_like.training.progress import Progress, Steering
from verl_like.training.prompt_counts import PromptCounts
from verl_like.training.step_metrics import Metrics
from verl_like.training.step_state import StepState
from verl_like.training.validation import validate

log = logging.getLogger(__name__)


class RolloutTrainer(Trainer):
    """A trainer whose steps generate responses; a subclass implements :meth:`step`.

    Args:
        val_prompts: held-out prompts; empty if the run does not validate.
    """

    job = "train"

    def __init__(self, parts: StepParts, val_prompts: Sequence[Prompt] = ()) -> None:
        super().__init__()
        self.parts, self.val_prompts = parts, val_prompts
        self.num_val_prompts = len(self.val_prompts)
        self.steering = Steering(kl_coef=parts.config.algorithm.kl_coef)
        # After the last closed step, because the prompts of an open one are drawn again.
        self.loader_state = parts.loader.state_dict()
        self.version = 0  # of the engines' weights
        # The prompts of each open step; everything else of a step is in its state.
        self._open: dict[int, PromptCounts] = {}

    @property
    def learners(self) -> Mapping[str, Savable]:
        learners: dict[str, Savable] = {"actor": self.parts.actor}
        if self.parts.critic is not None:
            learners["critic"] = self.parts.critic
        if self.parts.ref is not None and self.parts.config.ref_changes:
            learners["ref"] = self.parts.ref
        return learners

    @property
    def num_in_flight(self) -> int:
        return sum(prompts.in_flight for prompts in self._open.values())

    def start(self) -> None:
        current(Startup).now("copying the weights to the engine")
        self.version = self.parts.rollout.sync().version

    def open_step(self, step: int) -> StepState:
        """Begin a step that generates from the engines' weights; earlier steps may still be open."""
        if not self._open:
            current(Ledger).take()  # seconds between steps belong to none
        state = StepState(step=step, version=self.version, steering=self.steering, scores=self.parts.rewards.open())
        self._open[step] = state.prompts
        self.parts.snapshots.begin(step, steering=vars(self.steering), version=self.version, loader=self.loader_state)
        return state

    def close_step(self, state: StepState) -> Metrics:
        """Count a step after its update and sync; steps are closed in the order of their numbers.

        Returns:
            All metrics of the step. Its time begins when it was opened, or when the previous step was closed.
        """
        parts = self.parts
        assert state.loader_state is not None, f"step {state.step} has not kept the data loader's position"
        prompts = self.progress.prompts.plus(state.prompts)
        state.metrics.add(prompts.metrics() | parts.loader.metrics())
        state.metrics.add({"progress/epoch": state.step / parts.loader.batches_per_epoch})
        metrics = state.metrics.finish(current(Ledger).take(), parts.run_plan)
        prompts.check(drawn=state.num_drawn)
        del self._open[state.step]
        config = parts.config
        num_responses = config.data.train_batch_size * config.rollout.n
        self.progress.prompts, self.loader_state, self.version = prompts, state.loader_state, state.version
        self.steering = self.steering.after(
            metrics, config.algorithm, num_responses=num_responses, role_means=state.role_means
        )
        parts.snapshots.finish(state.step, metrics)
        return metrics

    def validate(self) -> Metrics:
        step, parts = self.progress.step, self.parts
        found = validate(
            parts.config,
            self.val_prompts,
            rollout=parts.rollout,
            rewards=parts.rewards,
            version=self.version,
            samples_path=parts.samples.of_validation(step),
        )
        parts.samples.validated(step)
        return found

    def state(self) -> dict[str, Any]:
        self.parts.rewards.settle()  # steps before a checkpoint are not repeated, so their samples must be written
        return {
            **asdict(self.progress),
            "steering": vars(self.steering),
            "weight_version": self.version,
            "loader": self.loader_state,
        }

    def load(self, state: dict[str, Any], path: Path) -> None:
        state = {name: value for name, value in state.items() if name != "job"}
        _refuse_partly_learnt(state.pop("window", None), state["step"])
        self.steering = Steering(**state.pop("steering"))
        self.loader_state = state.pop("loader")
        self.parts.loader.load_state_dict(self.loader_state)
        self.parts.actor.load(str(path / "actor"), state.pop("weight_version"))
        if self.parts.critic is not None:
            self.parts.critic.load(str(path / "critic"))
        self._load_reference(path / "ref")
        self.progress = Progress.read(state)

    def _load_reference(self, path: Path) -> None:
        """Read the reference of a checkpoint; one that does not change is the initial model."""
        if not path.is_dir():
            return
        if self.parts.ref is not None and self.parts.config.ref_changes:
            self.parts.ref.load(str(path))
        else:
            log.warning(
                "%s holds a reference that changed during training, but that of this run does not change: it is the "
                "initial model. Restore ref.reset_every or algorithm.distill_teacher=ema to continue with the other.",
                path,
            )

    def truncate_after(self, step: int) -> None:
        self.parts.snapshots.continue_after(step)

    def close(self) -> None:
        self.parts.samples.show()


def _refuse_partly_learnt(window: dict[str, Any] | None, step: int) -> None:
    """Check that a checkpoint of a schedule that generates ahead has learnt from whole batches alone.

    Raises:
        ValueError: some prompts of a batch that must be drawn again were learnt from already.
    """
    if window is not None and window["next"] != step + 1:
        raise ValueError(
            f"the checkpoint was written by trainer.schedule=async: after {step} steps the prompts of batch "
            f"{window['next']} were not all learnt from, so no other schedule can continue. Set trainer.schedule=async."
        )


def rollout_loop(
    trainer: type[RolloutTrainer],
    config: Config,
    stack: Stack,
    folder: RunFolder,
    *,
    loader: PromptLoader,
    trackers: Trackers,
    total_steps: int,
    val_prompts: Sequence[Prompt] = (),
    run_plan: RunPlan | None = None,
) -> TrainingLoop:
    """Return the loop of a trainer of this class over the workers of ``stack``."""
    parts = parts_of(config, stack, folder, loader=loader, trackers=trackers, run_plan=run_plan)
    return TrainingLoop(
        config,
        trainer(parts, val_prompts),
        folder,
        trackers,
        process_metrics=parts.process_metrics,
        processes=parts.processes,
        total_steps=total_steps,
    )
