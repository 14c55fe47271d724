"""The device, model sizes and folder that a check uses. Importing this loads nothing heavy."""

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
        num_gpus: number of GPUs that the command may use.
        is_small: use tiny models, so that a dry run takes seconds.
        folder: this command's folder, removed when it ends; later checks find the models of earlier ones there.
    """

    device: str
    num_gpus: int
    is_small: bool
    folder: Path

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the models, the smallest first; most checks use only that one."""
        return (TINY,) if self.is_small else ("0.5B", "1.5B", "7B-8-layers")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of forward passes; the engine and the trainer use the last one."""
        return ("bfloat16", "float32") if self.device == "cpu" else ("float32", "bfloat16")

    @property
    def max_engine_gap(self) -> float:
        """Maximum mean gap between an engine's and its trainer's log-probs, in nats per token.

        They round at different points: ``checks/precision.py`` derives the effect in bfloat16; it is tiny in float32.
        """
        return {"bfloat16": 0.02, "float32": 1e-4}[self.dtypes[-1]]

    @property
    def run_id(self) -> str:
        """Part of the names of shared memory."""
        return self.folder.name

    def of(self, name: str) -> Path:
        """Return the folder of one check."""
        return self.folder / name

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "folder": str(self.folder)})


def scene_from_json(text: str) -> Scene:
    """Parse the output of :meth:`Scene.to_json`."""
    scene = Scene(**json.loads(text))
    return replace(scene, folder=Path(scene.folder))


@contextmanager
def temporary(*, device: str, num_gpus: int, is_small: bool) -> Iterator[Scene]:
    """Yield a scene; at the end remove its folder and what it left in shared memory, also after an error."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        scene = Scene(device=device, num_gpus=num_gpus, is_small=is_small, folder=Path(folder))
        try:
            yield scene
        finally:
            remove_leftovers(scene.run_id)
