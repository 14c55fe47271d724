"""Lookup of the checkpoints in a folder, and the messages for missing or damaged ones."""

from __future__ import annotations

import pickletools
import re
from pathlib import Path

from verl_like.checks.manifest import damage
from verl_like.config.readers import value_hint
from verl_like.config.suggestion import suggestion

ANOTHER = "Name another checkpoint, or put an intact copy there."
STEP = re.compile(r"step_(\d+)")


def steps_in(folder: Path) -> list[int]:
    """Return the steps of the published checkpoints in a ``checkpoints`` folder, oldest first."""
    if not folder.is_dir():
        return []
    # Not glob, which treats an unreadable folder as empty.
    return sorted(int(m[1]) for path in folder.iterdir() if (m := STEP.fullmatch(path.name)))


def missing_checkpoint(path: Path) -> str | None:
    """Return the end of a message: why ``path`` is no checkpoint and which ones are nearby; None for a checkpoint."""
    if (path / "trainer.json").is_file():
        return None
    found = "that folder has no trainer.json" if path.is_dir() else "no such folder exists"
    for folder in (path / "checkpoints", path, path.parent):  # of a run, of a checkpoints folder, next to it
        steps = steps_in(folder)
        if steps:
            there = [f"step_{step}" for step in steps] + ["best"] * (folder / "best").exists()
            return f"{found}. {folder} holds {', '.join(there)}: name one of these."
    return f"{found} (looked from {Path.cwd()}). Give a .../checkpoints/step_N folder of a run."


def resume_problem(resume: str) -> str | None:
    """Return the problem of ``trainer.resume``: found, expected, remedy; None if it is valid."""
    if resume in ("auto", "never"):
        return None
    missing = missing_checkpoint(Path(resume).expanduser())
    if missing is None:
        reason = damage(Path(resume).expanduser())
        if reason is not None:
            return f"trainer.resume is {resume}, which is damaged: {reason}. {ANOTHER}"
        if (reason := foreign(Path(resume).expanduser())) is not None:
            return f"trainer.resume is {resume}, which was written by another program: {reason}. {ANOTHER}"
        return None
    if "/" not in resume:  # a word
        hint = value_hint("trainer.resume", resume) or suggestion(resume, ("auto", "never"))
        missing = "no such folder exists" + (hint or f"; {missing}")
    return f"trainer.resume is {resume}, but must be auto, never or the folder of a checkpoint, and {missing}"


def foreign(checkpoint: Path) -> str | None:
    """Return why workers could not read a checkpoint's ``actor``, found without torch; None if they can."""
    file = checkpoint / "actor/.metadata"
    if not file.is_file():
        return None  # the workers report it, with the folder
    try:
        texts = [text for _, text, _ in pickletools.genops(file.read_bytes()) if isinstance(text, str)]
    except ValueError as error:
        return f"actor/.metadata is not a pickle ({error})"
    if not any("torch.distributed.checkpoint.metadata" in text for text in texts):
        return "actor/.metadata lists no tensors of a sharded checkpoint"
    if not any(text.startswith("model.") for text in texts):
        return "actor/.metadata lists no weights of a model (model....)"
    return None


def checkpoint_of(path: Path) -> Path:
    """Return ``path`` if it is a checkpoint, or the newest undamaged one if it is a run or its ``checkpoints`` folder.

    Raises:
        ValueError: there is no checkpoint, with those nearby; or all are damaged.
    """
    found = [path] if (path / "trainer.json").is_file() else []
    for folder in (path / "checkpoints", path):
        found = found or [folder / f"step_{step}" for step in reversed(steps_in(folder))]
    reasons = []
    for checkpoint in found:
        reason = damage(checkpoint)
        if reason is None:
            return checkpoint
        reasons.append(f"{checkpoint} is damaged: {reason}")
    if reasons:
        raise ValueError(f"{'; '.join(reasons)}. {ANOTHER}")
    raise ValueError(f"found no checkpoint at {path}: {missing_checkpoint(path)}")
