"""Checkpoints: written new, synced, then published by an atomic rename; never delete-then-write."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_like.checks.checkpoints import missing_checkpoint, steps_in
from verl_like.checks.manifest import damage, write_manifest
from verl_like.disk import writing

log = logging.getLogger(__name__)


def publish(temporary: Path, final: Path) -> None:
    """Make a finished folder appear under its name, all or nothing."""
    for file in sorted(temporary.rglob("*")):
        _sync(file)
    _sync(temporary)
    if final.exists():
        stale = final.with_name(f".old-{final.name}")
        final.rename(stale)
        temporary.rename(final)
        _remove(stale)
    else:
        temporary.rename(final)
    _sync(final.parent)


def _remove(path: Path) -> None:
    """Remove a folder, or the file that somebody has put in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a run: ``step_N`` folders, of which the newest ones are kept, and ``best`` (a link to one)."""

    folder: Path
    max_checkpoints: int

    def steps(self) -> list[int]:
        """Steps of the published checkpoints, oldest first."""
        return steps_in(self.folder)

    def holds(self, checkpoint: Path) -> bool:
        """Whether a checkpoint is one of these, and no other run's."""
        return checkpoint.resolve().parent == self.folder.resolve()

    def path(self, step: int) -> Path:
        return self.folder / f"step_{step}"

    @contextmanager
    def written(self, state: dict[str, Any], *, is_best: bool) -> Iterator[Path]:
        """A new folder with ``state`` (JSON; holds ``step``), to be filled inside and published at the end, where the
        oldest are forgotten. May end on another thread than it began on.

        Raises:
            DiskRefused: the disk is full, or cannot be written; the older checkpoints are as they were.
        """
        final = self.path(state["step"])
        temporary = self.folder / f".writing-{final.name}"
        try:
            with writing(final):
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
                (temporary / "trainer.json").write_text(json.dumps(state, indent=1))
                yield temporary.absolute()
                write_manifest(temporary)
                publish(temporary, final)
                if is_best:
                    self.mark_best(state["step"])
                self._prune(state["step"])
        except KeyboardInterrupt:  # insists on an end now; the next start sweeps
            raise
        except BaseException:  # torch's CheckpointException is no Exception
            shutil.rmtree(temporary, ignore_errors=True)  # half a checkpoint on a full disk is in its own way
            raise

    def mark_best(self, step: int) -> None:
        """Let ``best`` name the checkpoint of a step, if that is there; a run that died may not have come to it."""
        final = self.path(step)
        if not final.is_dir() or self.best() == final.resolve():
            return
        link = self.folder / ".best"
        link.unlink(missing_ok=True)
        link.symlink_to(final.name)
        best = self.folder / "best"
        if best.is_dir() and not best.is_symlink():  # copied by a program that follows links
            log.warning("%s is a folder, but must be a link to a checkpoint; a link takes its place", best)
            shutil.rmtree(best)
        link.rename(best)

    def best(self) -> Path | None:
        link = self.folder / "best"
        return link.resolve() if link.exists() else None

    def _prune(self, newest: int) -> None:
        """Forget the oldest; later steps than ``newest`` are damaged ones, which count for nothing until they come
        again.
        """
        if self.max_checkpoints == 0:
            return
        for step in [step for step in self.steps() if step <= newest][: -self.max_checkpoints]:
            if self.path(step).resolve() != self.best():
                _remove(self.path(step))

    def find(self, resume: str) -> Path | None:
        """The checkpoint to continue from: the newest that is whole (``auto``), none (``never``) or the one at a path,
        which the checks have found to be one.

        Raises:
            ValueError: none of the checkpoints is whole.
        """
        if resume == "never":
            return None
        if resume == "auto":
            return self._newest()
        # Absolute, because workers read it too, from working directories of their own.
        path = Path(resume).expanduser().absolute()
        missing = missing_checkpoint(path)
        assert missing is None, f"trainer.resume={resume} was let through: {missing}"
        return path

    def newest_before(self, step: int) -> Path | None:
        """The newest checkpoint of an earlier step that is whole."""
        return next((self.path(s) for s in reversed(self.steps()) if s < step and damage(self.path(s)) is None), None)

    def _newest(self) -> Path | None:
        """The newest checkpoint that is whole; newer ones are told."""
        damaged: list[str] = []
        for step in reversed(self.steps()):
            reason = damage(self.path(step))
            if reason is None:
                if damaged:
                    log.warning("passed over %s; step_%d is the newest that is whole", "; ".join(damaged), step)
                return self.path(step)
            damaged.append(f"step_{step} ({reason})")
        if damaged:
            raise ValueError(
                f"{self.folder} holds no checkpoint that is whole: {'; '.join(damaged)}. Put a whole one there, or "
                "begin anew with another trainer.experiment_name."
            )
        return None

    def sweep(self) -> None:
        """Remove what a run that died left half written or half deleted; nobody else may write here."""
        for old in self.folder.glob(".old-step_*"):
            final = self.folder / old.name.removeprefix(".old-")
            if not final.exists():  # it died between two renames
                old.rename(final)
        for left in (*self.folder.glob(".old-*"), *self.folder.glob(".writing-*")):
            shutil.rmtree(left, ignore_errors=True)

    def check_start(self, start: Path | None, *, job: str) -> None:
        """Refuse to continue from ``start`` where it is of another job ("train", "sft"), or where this folder has gone
        on beyond it.

        Raises:
            ValueError: what was found and what to do.
        """
        state: dict[str, Any] = load_state(start) if start is not None else {"job": job, "step": 0}
        if state["job"] != job:
            raise ValueError(
                f"trainer.resume={start} is a checkpoint of `verl-like {state['job']}`, which `verl-like {job}` "
                f"cannot continue. "
                f"To start from its policy, run `verl-like export {start}` and set model.path to the folder it writes."
            )
        step = state["step"]
        newer = [found for found in self.steps() if found > step and damage(self.path(found)) is None]
        newest = max(newer, default=step)
        if newest > step:
            raise ValueError(
                f"trainer.resume={start} is step {step}, but {self.folder} holds step_{newest} of another "
                f"continuation, with which this "
                "one would be mixed. Choose another trainer.experiment_name to branch off, or trainer.resume=auto to "
                "go on from the newest."
            )


def load_state(path: Path) -> dict[str, Any]:
    """The driver's part of a checkpoint."""
    state: dict[str, Any] = json.loads((path / "trainer.json").read_text())
    return state
