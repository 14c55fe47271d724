"""The schedule one_step_off: the next batches are generated while the policy learns from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_like.training.window import oldest_draw
from verl_like.training.window_trainer import WindowTrainer


class OneStepOffTrainer(WindowTrainer):
    """Learns from whole batches in the order in which they were drawn."""

    choose = staticmethod(oldest_draw)

    def load(self, state: dict[str, Any], path: Path) -> None:
        left = state.get("window", {}).get("left", {}).items()
        size = self.parts.config.data.train_batch_size
        partial = [number for number, positions in left if len(positions) != size]
        if partial:
            raise ValueError(
                f"the checkpoint was written by trainer.schedule=async: of batch {partial[0]} only some prompts are "
                "left to learn from, but trainer.schedule=one_step_off learns from whole batches. Set "
                "trainer.schedule=async."
            )
        super().load(state, path)
