"""Learners whose state is a word, and the saving of a step of theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from verl_like.runs.checkpoint import Checkpoints
from verl_like.runs.saving import Saves


class Saver:
    """Learners that write their name into a given folder.

    Args:
        name: stands for their state; may change.
        is_broken: whether writing fails.
    """

    def __init__(self, name: str = "actor", *, is_broken: bool = False) -> None:
        self.name, self.is_broken = name, is_broken
        self.may_write, self.is_writing = threading.Event(), threading.Event()
        self.may_write.set()
        self._copy: tuple[str, str] | None = None

    def save(self, path: str) -> None:
        self._write(path, self.name)

    def begin_save(self, path: str) -> None:
        assert self._copy is None, "the copy before this one was never written"
        self._copy = path, self.name

    def write(self, check: Callable[[], None]) -> None:
        assert self._copy is not None
        path, name = self._copy
        self._copy = None
        self.is_writing.set()
        try:
            while not self.may_write.wait(0.01):
                check()
            self._write(path, name)
        finally:
            self.is_writing.clear()

    def _write(self, path: str, name: str) -> None:
        Path(path).mkdir()
        if self.is_broken:
            raise RuntimeError("disk full")
        (Path(path) / "weights").write_text(name)


def saves(
    checkpoints: Checkpoints,
    actor: Saver,
    critic: Saver | None = None,
    *,
    is_async: bool = True,
    timeout_s: float = 30.0,
) -> Saves:
    learners = {"actor": actor} if critic is None else {"actor": actor, "critic": critic}
    return Saves(checkpoints, learners, is_async=is_async, timeout_s=timeout_s)


def state_of(step: int) -> dict[str, object]:
    return {"job": "train", "step": step}


def save(
    checkpoints: Checkpoints,
    step: int,
    *,
    actor: str = "actor",
    critic: str = "",
    is_best: bool = False,
    is_broken: bool = False,
    is_async: bool = True,
) -> Path:
    """A checkpoint that is there when this returns."""
    savers = Saver(actor, is_broken=is_broken), Saver(critic) if critic else None
    with saves(checkpoints, *savers, is_async=is_async) as saving:
        saving.save(state_of(step), is_best=is_best)
    return checkpoints.path(step)
