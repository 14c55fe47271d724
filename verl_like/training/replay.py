"""``verl-like replay``: repeat a step of a run, and name the first value that differs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from verl_like.algorithms.roles import needs
from verl_like.checks.requirements import check_machine
from verl_like.checks.rules import check
from verl_like.context import current
from verl_like.controller.errors import Interrupt
from verl_like.data.templates import load_tokenizer
from verl_like.runs.first_difference import Comparison, compare
from verl_like.runs.folder import RunFolder
from verl_like.runs.lock import FolderLock
from verl_like.runs.replay_plan import ReplayPlan
from verl_like.runs.snapshot_files import changed_versions, snapshot_of
from verl_like.runs.status import shown
from verl_like.telemetry.loggers import trackers
from verl_like.telemetry.startup import Startup
from verl_like.telemetry.trackers import read_metrics
from verl_like.training.build import stack
from verl_like.training.ppo import PPOTrainer
from verl_like.training.rollout_trainer import rollout_loop
from verl_like.training.tasks import learner_updates, num_steps, prompt_loader, train_prompts
from verl_like.workers.matmul_record import NAME as MATMUL
from verl_like.workers.matmul_record import OF_REWARD_MODEL

log = logging.getLogger(__name__)


def replay(planned: ReplayPlan) -> tuple[int, Comparison]:
    """Repeat the steps of the plan.

    Returns:
        The first step that differs, or the last one, and its comparison.

    Raises:
        ValueError: the run's files no longer exist, or this machine lacks what the run needs.
    """
    config, folder = planned.config, RunFolder(planned.config)
    check(config)
    check_machine(config, generates=True)
    tokenizer = load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)
    loader = prompt_loader(config, train_prompts(config, tokenizer))
    steps = num_steps(config, loader)
    shutil.rmtree(folder.path, ignore_errors=True)
    with FolderLock(folder.path):
        folder.claim(planned.config_yaml, job="train")
        for record in filter(Path.is_file, (planned.run / name for name in (MATMUL, OF_REWARD_MODEL))):
            shutil.copyfile(record, folder.path / record.name)
        with (
            trackers(config, folder.path, total_steps=steps) as tracker,
            stack(config, tokenizer, folder, roles=needs(config).roles, **learner_updates(config, steps)) as parts,
        ):
            loop = rollout_loop(PPOTrainer, config, parts, folder, loader=loader, trackers=tracker, total_steps=steps)
            loop.begin()
            current(Startup).now("taking the first step")
            for step in range(planned.first, planned.step + 1):
                current(Interrupt).stop_before("replay")
                loop.finish(loop.trainer.step(step))
                found = _compared(planned, folder, step)
                if found.difference is not None:
                    break
    return step, found


def _compared(planned: ReplayPlan, folder: RunFolder, step: int) -> Comparison:
    replayed = snapshot_of(folder.snapshots, step)
    assert replayed is not None, f"the replay of step {step} wrote no snapshot"
    logged = read_metrics(planned.run / "metrics.jsonl").items()
    metrics = {name: of_step[step] for name, of_step in logged if step in of_step and not name.startswith("val/")}
    return compare(snapshot_of(planned.run / "capsules", step), replayed, metrics)


def result_of(planned: ReplayPlan, step: int, found: Comparison) -> str:
    """Return the result of a replay in one line; warn if the step was recorded with other versions."""
    if changed := changed_versions(snapshot_of(planned.run / "capsules", step)):
        log.warning("the step was recorded with %s", ", ".join(changed))
    start = f"from {shown(planned.start)}" if planned.start is not None else "from the beginning"
    if found.difference is not None:
        return f"step {step} differs first in {found.difference} ({start})"
    compared = [f"{found.num_metrics} metrics"] if found.num_metrics else []
    if found.num_rows:
        compared.insert(0, f"{found.num_rows} rows of {found.num_columns} columns")
    if not compared:
        return f"step {step} was replayed ({start}), but no record of it exists to compare"
    rows = "" if found.num_rows else "; its rows were not kept (trainer.num_capsules keeps those of the newest steps)"
    return f"step {step} equals its record bit for bit: {' and '.join(compared)} ({start}){rows}"
