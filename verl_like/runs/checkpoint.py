"""Checkpoints: written to a temporary folder, synced, then published by an atomic rename; never delete-then-write."""

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
    """Rename a finished folder to its final name, all or nothing."""
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
    """Remove a folder, or a file that has replaced it."""
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
    """The checkpoints of a run: the newest ``step_N`` folders are kept, and ``best`` is a link to one."""

    folder: Path
    max_checkpoints: int

    def steps(self) -> list[int]:
        """Return the steps of the published checkpoints, oldest first."""
        return steps_in(self.folder)

    def holds(self, checkpoint: Path) -> bool:
        """Return whether a checkpoint belongs to this run."""
        return checkpoint.resolve().parent == self.folder.resolve()

    def path(self, step: int) -> Path:
        return self.folder / f"step_{step}"

    @contextmanager
    def written(self, state: dict[str, Any], *, is_best: bool) -> Iterator[Path]:
        """Create a folder with ``state`` (JSON; contains ``step``), to be filled inside and published on exit.

        Publishing removes the oldest checkpoints. The context may exit on another thread than it was entered on.

        Raises:
            DiskRefused: the disk is full or not writable; the older checkpoints are unchanged.
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
        except KeyboardInterrupt:  # the user wants to end now; the next start removes the folder
            raise
        except BaseException:  # torch's CheckpointException is not an Exception
            shutil.rmtree(temporary, ignore_errors=True)  # a partial checkpoint takes space on a full disk
            raise

    def mark_best(self, step: int) -> None:
        """Point ``best`` to the checkpoint of a step if it exists; a run that died may not have written it."""
        final = self.path(step)
        if not final.is_dir() or self.best() == final.resolve():
            return
        link = self.folder / ".best"
        link.unlink(missing_ok=True)
        link.symlink_to(final.name)
        best = self.folder / "best"
        if best.is_dir() and not best.is_symlink():  # copied by a program that follows links
            log.warning("%s is a folder, but must be a link to a checkpoint; it is replaced by a link", best)
            shutil.rmtree(best)
        link.rename(best)

    def best(self) -> Path | None:
        link = self.folder / "best"
        return link.resolve() if link.exists() else None

    def _prune(self, newest: int) -> None:
        """Remove the oldest checkpoints.

        Later steps than ``newest`` are damaged; they do not count until the run writes them again.
        """
        if self.max_checkpoints == 0:
            return
        for step in [step for step in self.steps() if step <= newest][: -self.max_checkpoints]:
            if self.path(step).resolve() != self.best():
                _remove(self.path(step))

    def find(self, resume: str) -> Path | None:
        """Return the checkpoint to continue from.

        Args:
            resume: ``auto`` for the newest intact checkpoint, ``never`` for None, or a path that the checks have
                accepted.

        Raises:
            ValueError: none of the checkpoints is intact.
        """
        if resume == "never":
            return None
        if resume == "auto":
            return self._newest()
        # Absolute, because workers with other working directories read it too.
        path = Path(resume).expanduser().absolute()
        missing = missing_checkpoint(path)
        assert missing is None, f"trainer.resume={resume} passed the checks: {missing}"
        return path

    def newest_before(self, step: int) -> Path | None:
        """Return the newest intact checkpoint of an earlier step."""
        return next((self.path(s) for s in reversed(self.steps()) if s < step and damage(self.path(s)) is None), None)

    def _newest(self) -> Path | None:
        """Return the newest intact checkpoint; log the damaged ones that are newer."""
        damaged: list[str] = []
        for step in reversed(self.steps()):
            reason = damage(self.path(step))
            if reason is None:
                if damaged:
                    log.warning("passed over %s; step_%d is the newest intact checkpoint", "; ".join(damaged), step)
                return self.path(step)
            damaged.append(f"step_{step} ({reason})")
        if damaged:
            raise ValueError(
                f"{self.folder} holds no intact checkpoint: {'; '.join(damaged)}. Put an intact copy there, or "
                "start a new run with another trainer.experiment_name."
            )
        return None

    def sweep(self) -> None:
        """Clean up after a run that died while writing or deleting; no other process may write here."""
        for old in self.folder.glob(".old-step_*"):
            final = self.folder / old.name.removeprefix(".old-")
            if not final.exists():  # it died between the two renames
                old.rename(final)
        for left in (*self.folder.glob(".old-*"), *self.folder.glob(".writing-*")):
            shutil.rmtree(left, ignore_errors=True)

    def check_start(self, start: Path | None, *, job: str) -> None:
        """Refuse to continue from a checkpoint of another job, or one that this folder is already ahead of.

        Args:
            job: "train" or "sft".

        Raises:
            ValueError: ``start`` cannot be continued; the message names what was found and a remedy.
        """
        state: dict[str, Any] = load_state(start) if start is not None else {"job": job, "step": 0}
        if state["job"] != job:
            raise ValueError(
                f"trainer.resume={start} is a checkpoint of `verl-like {state['job']}`, which `verl-like {job}` cannot "
                f"continue. To start from its policy, run `verl-like export {start}` and set model.path to the folder "
                "it writes."
            )
        step = state["step"]
        newer = [found for found in self.steps() if found > step and damage(self.path(found)) is None]
        newest = max(newer, default=step)
        if newest > step:
            raise ValueError(
                f"trainer.resume={start} is step {step}, but {self.folder} holds step_{newest} of another "
                "continuation, and the two would be mixed. Set another trainer.experiment_name to branch off, or "
                "trainer.resume=auto to continue from the newest."
            )


def load_state(path: Path) -> dict[str, Any]:
    """Return the driver's part of a checkpoint."""
    state: dict[str, Any] = json.loads((path / "trainer.json").read_text())
    return state
