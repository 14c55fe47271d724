"""What a run says when it has ended, or has nothing left to do."""

from __future__ import annotations

import os
from pathlib import Path

from verl_like.config.schema import Config
from verl_like.trainer.checkpoint import load_state
from verl_like.trainer.run_folder import RunFolder


def finished_step(folder: RunFolder, start: Path | None, *, steps: int, has_validation: bool) -> int | None:
    """The last step of a run that has nothing left to do; None where something is.

    Args:
        start: the checkpoint to continue from.
        steps: how many the run is to have.
        has_validation: whether the last step is validated.
    """
    if start is None or start.resolve().parent != folder.checkpoints.resolve():
        return None
    state = load_state(start)
    step = int(state["step"])
    is_validated = not has_validation or step > steps or state["last_val_step"] == step
    if step < steps or not is_validated:
        return None
    # The model may be that of an earlier end, before the run was made longer.
    model, made = folder.model / "config.json", start / "trainer.json"
    return step if model.exists() and model.stat().st_mtime >= made.stat().st_mtime else None


def nothing_to_do(config: Config, folder: RunFolder, step: int) -> str:
    """The sentence for a run that is started again when it is finished."""
    trainer = config.trainer
    longer = (
        f"trainer.total_training_steps above {step}"
        if trainer.total_training_steps
        else f"trainer.total_epochs above {trainer.total_epochs}"
    )
    return (
        f"{shown(folder.path)} is finished: step {step} was its last. To go on, set {longer}; for a new run, set "
        "trainer.experiment_name."
    )


def what_lies_where(folder: RunFolder) -> str:
    """A line for each thing that the run has left."""
    places = {
        "model": folder.model,
        "checkpoints": folder.checkpoints,
        "curves": folder.curves,
        "metrics": folder.metrics,
        "samples": folder.samples,
    }
    return "\n".join(f"{name:<12}{shown(path)}" for name, path in places.items() if _has_something(path))


def shown(path: Path) -> str:
    """A path as the user would type it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _has_something(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))
