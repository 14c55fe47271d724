"""The checkpoints that lie in a folder, and what is said where one is asked for that does not."""

from __future__ import annotations

import re
from pathlib import Path

from verl_like.config.suggestion import suggestion

STEP = re.compile(r"step_(\d+)")


def steps_in(folder: Path) -> list[int]:
    """Steps of the published checkpoints in a ``checkpoints`` folder, oldest first."""
    return sorted(int(m[1]) for path in folder.glob("step_*") if (m := STEP.fullmatch(path.name)))


def missing_checkpoint(path: Path) -> str | None:
    """Why ``path`` is no checkpoint and which ones are near it, as the end of a message; None where it is one."""
    if (path / "trainer.json").is_file():
        return None
    found = "that folder has no trainer.json" if path.is_dir() else "no such folder exists"
    for folder in (path / "checkpoints", path, path.parent):  # of a run, the folder of all, a neighbour
        steps = steps_in(folder)
        if steps:
            there = [f"step_{step}" for step in steps] + ["best"] * (folder / "best").exists()
            return f"{found}. {folder} holds {', '.join(there)}: name one of these."
    return f"{found} (looked from {Path.cwd()}). Give a .../checkpoints/step_N folder of a run."


def resume_problem(resume: str) -> str | None:
    """What is wrong with ``trainer.resume``: found, expected, remedy; None where nothing is."""
    if resume in ("auto", "never"):
        return None
    missing = missing_checkpoint(Path(resume).expanduser())
    if missing is None:
        return None
    if "/" not in resume:  # a word
        missing = "no such folder exists" + (suggestion(resume, ("auto", "never")) or f"; {missing}")
    return f"trainer.resume is {resume}, but must be auto, never or the folder of a checkpoint, and {missing}"


def checkpoint_of(path: Path) -> Path:
    """The checkpoint that ``path`` is, or the newest one of the run (or of its ``checkpoints``) that it is.

    Raises:
        ValueError: neither; the message says which checkpoints are near.
    """
    if (path / "trainer.json").is_file():
        return path
    for folder in (path / "checkpoints", path):
        steps = steps_in(folder)
        if steps:
            return folder / f"step_{steps[-1]}"
    raise ValueError(f"found no checkpoint at {path}: {missing_checkpoint(path)}")
