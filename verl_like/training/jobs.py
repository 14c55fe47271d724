"""The job that trains by reinforcement: it builds its workers and ends all of them."""

from __future__ import annotations

import logging
from dataclasses import asdict

from verl_like.algorithms.roles import needs
from verl_like.config.schema import Config
from verl_like.plan.check import check_memory
from verl_like.report.at_end import report_at_end
from verl_like.runs.checkpoint import Checkpoints
from verl_like.runs.folder import RunFolder
from verl_like.runs.lock import FolderLock
from verl_like.runs.restarts import with_restarts
from verl_like.runs.status import finished_step, nothing_to_do, start_of
from verl_like.runs.upload import uploaded
from verl_like.telemetry.loggers import trackers
from verl_like.telemetry.results import Summary, write_curves, write_summary
from verl_like.telemetry.versions import git_commit, versions
from verl_like.training.build import stack
from verl_like.training.policy_jobs import write_model
from verl_like.training.progress import Progress
from verl_like.training.rollout_trainer import RolloutTrainer, rollout_loop
from verl_like.training.schedules import SCHEDULES
from verl_like.training.tasks import check_reward, learner_updates, prompt_loader, task_of

log = logging.getLogger(__name__)


def train(config: Config, config_yaml: str, *, trainer: type[RolloutTrainer] | None = None) -> Progress:
    """Train by reinforcement learning (``verl-like train``).

    An interrupted run leaves a checkpoint, and its model is not exported.

    Args:
        trainer: takes the steps; by default the trainer of ``trainer.schedule``.

    Raises:
        ValueError: a configuration, data set or folder that cannot work; nothing has been started then.
    """
    task = task_of(config)
    tokenizer, prompts, val_prompts, steps = task.tokenizer, task.prompts, task.val_prompts, task.steps
    folder, newest = start_of(config, config_yaml, job="train")
    if (step := finished_step(folder, newest, steps=steps, has_validation=bool(val_prompts))) is not None:
        log.info(nothing_to_do(config, folder, step))
        folder.repair(config_yaml, job="train")
        with uploaded(config, folder):  # an earlier end may not have copied everything
            return Progress(step=step)
    plan = check_memory(config)
    if plan is not None:
        config = plan.config
    check_reward(config, task.prompts, task.val_prompts)
    with FolderLock(folder.path), uploaded(config, folder):
        folder.claim(config_yaml, job="train")
        Checkpoints(folder.checkpoints, config.trainer.max_checkpoints).sweep()
        with trackers(config, folder.path, total_steps=steps) as tracker:

            def start(config: Config) -> Progress:
                with stack(
                    config, tokenizer, folder, roles=needs(config).roles, **learner_updates(config, steps)
                ) as parts:
                    progress = rollout_loop(
                        trainer or SCHEDULES[config.trainer.schedule],
                        config,
                        parts,
                        folder,
                        loader=prompt_loader(config, prompts),
                        trackers=tracker,
                        total_steps=steps,
                        val_prompts=val_prompts or (),
                        run_plan=plan,
                    ).run()
                    if progress.step >= steps:
                        write_model(parts.actor, folder.model)
                return progress

            progress = with_restarts(config, start)
            write_results(config, folder, progress, steps=steps)
            report_at_end(folder.path, tracker)
    return progress


def write_results(config: Config, folder: RunFolder, progress: Progress, *, steps: int) -> None:
    """Write summary.json and curves.png of a run of ``steps`` steps that has finished or was stopped."""
    write_summary(
        folder.path,
        Summary(
            initial_val=progress.initial_val,
            initial_val_metric=config.val_metric,
            final_val=progress.last_val,
            steps=progress.step,
            seconds=progress.seconds,
            seconds_per_step=progress.seconds / max(progress.step, 1),
            tokens_per_s=progress.tokens / max(progress.seconds, 1e-9),
            seed=config.trainer.seed,
            prompts=asdict(progress.prompts),
            status="finished" if progress.step >= steps else "interrupted",
            best_step=progress.best_step if progress.best_step > 0 else None,
            best_val=progress.best if progress.best_step > 0 else None,
            model=config.model.path,
            versions=versions(),
            git_commit=git_commit(),
        ),
    )
    write_curves(folder.path)
