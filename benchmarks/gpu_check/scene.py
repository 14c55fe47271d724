"""Where a check runs. Importing this loads nothing heavy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from verl_like.backends.rollout import remove_leftovers

TINY = "tiny"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """
    Args:
        device: "cuda" or "cpu".
        num_gpus: that the command may use.
        is_small: tiny models, so that a dry run takes seconds.
        folder: of this command, removed when it ends; models that a check has written are there for the next one.
    """

    device: str
    num_gpus: int
    is_small: bool
    folder: Path

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the models, the smallest first; most checks take that one."""
        return (TINY,) if self.is_small else ("0.5B", "1.5B")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of forward passes; the engine and the trainer take the last one."""
        return ("bfloat16", "float32") if self.device == "cpu" else ("float32", "bfloat16")

    @property
    def max_engine_gap(self) -> float:
        """Of an engine's log-probs from its trainer's, in nats, mean over tokens.

        They round in other places: in bfloat16 that costs what ``checks/precision.py`` derives, in float32 next to
        nothing.
        """
        return {"bfloat16": 0.02, "float32": 1e-4}[self.dtypes[-1]]

    @property
    def run_id(self) -> str:
        """Goes into the names of shared memory."""
        return self.folder.name

    def of(self, name: str) -> Path:
        """The folder of one check."""
        return self.folder / name

    def in_words(self) -> str:
        return json.dumps({**asdict(self), "folder": str(self.folder)})


def from_words(text: str) -> Scene:
    """What :meth:`Scene.in_words` has written."""
    scene = Scene(**json.loads(text))
    return replace(scene, folder=Path(scene.folder))


@contextmanager
def temporary(*, device: str, num_gpus: int, is_small: bool) -> Iterator[Scene]:
    """A scene whose folder is removed, and nothing of it left in shared memory, however it ends."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        scene = Scene(device=device, num_gpus=num_gpus, is_small=is_small, folder=Path(folder))
        try:
            yield scene
        finally:
            remove_leftovers(scene.run_id)
