"""Determine where a run starts and whether steps are left, and compose its messages at the end."""

from __future__ import annotations

import os
from pathlib import Path

from verl_like.checks.checkpoints import steps_in
from verl_like.config.schema import Config
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.folder import RunFolder
from verl_like.runs.lock import refuse_held


def start_of(config: Config, config_yaml: str, *, job: str) -> tuple[RunFolder, Path | None]:
    """Return the run's folder and start checkpoint, after checking that the run can start or continue there."""
    folder, resume = RunFolder(config), config.trainer.resume
    refuse_held(folder.path)
    checkpoints = Checkpoints(folder.checkpoints, config.trainer.max_checkpoints)
    start = checkpoints.find(resume)
    folder.refuse_other(config_yaml, job=job, resume=resume)
    checkpoints.check_start(start, job=job)
    return folder, start


def finished_at_once(config: Config, config_yaml: str, *, job: str) -> str | None:
    """Return the message of :func:`nothing_to_do` if the number of steps is known without reading the data, else None.

    This is light and can run before anything is imported. A run that is not finished is not checked here.

    Raises:
        ValueError: the folder is that of another, finished run.
    """
    steps = config.trainer.total_training_steps
    if not steps or config.trainer.resume != "auto":
        return None
    folder = RunFolder(config)
    newest = Checkpoints(folder.checkpoints, config.trainer.max_checkpoints).find("auto")
    has_validation = job == "train" and config.validates
    step = finished_step(folder, newest, steps=steps, has_validation=has_validation)
    if step is None:
        return None
    start_of(config, config_yaml, job=job)
    return nothing_to_do(config, folder, step)


def finished_step(folder: RunFolder, start: Path | None, *, steps: int, has_validation: bool) -> int | None:
    """Return the last step of a run that has nothing left to do, else None.

    Args:
        start: the checkpoint to continue from.
        steps: total number of steps of the run.
        has_validation: whether the last step is validated.
    """
    if start is None or start.resolve().parent != folder.checkpoints.resolve():
        return None
    state = load_state(start)
    step = int(state["step"])
    is_validated = (
        not has_validation or step > steps or state.get("last_val_step") == step
    )  # supervised training has no validation
    if step < steps or not is_validated:
        return None
    # The files may be from an earlier end, before the run was extended; a killed run lacks the last ones.
    made = (start / "trainer.json").stat().st_mtime
    last = (folder.model / "config.json", folder.curves)
    return step if all(path.exists() and path.stat().st_mtime >= made for path in last) else None


def nothing_to_do(config: Config, folder: RunFolder, step: int) -> str:
    """Return the message for a finished run that is started again."""
    trainer = config.trainer
    longer = (
        f"trainer.total_training_steps above {step}"
        if trainer.total_training_steps
        else f"trainer.total_epochs above {trainer.total_epochs}"
    )
    return (
        f"{shown(folder.path)} is finished: step {step} was the last. To continue it, set {longer}; for a new run, set "
        "another trainer.experiment_name."
    )


def last_checkpoint(folder: RunFolder) -> str:
    """Return a sentence on the last checkpoint of a stopped run; light, so its integrity is not checked."""
    steps = steps_in(folder.checkpoints)
    if not steps:
        return "There is no checkpoint yet; the same command starts from the beginning."
    return f"The last checkpoint is {shown(folder.checkpoints)}/step_{steps[-1]}; the same command continues from it."


def outputs_of(folder: RunFolder) -> str:
    """Return one line for each output of the run."""
    paths = {
        "model": folder.model,
        "checkpoints": folder.checkpoints,
        "report": folder.report,
        "curves": folder.curves,
        "metrics": folder.metrics,
        "samples": folder.samples,
    }
    return "\n".join(f"{name:<12}{shown(path)}" for name, path in paths.items() if _has_something(path))


def shown(path: Path) -> str:
    """Return a path as the user would type it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _has_something(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))
