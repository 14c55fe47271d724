"""The schedule one_step_off: the next batches are generated while the policy learns from one."""

from __future__ import annotations

from verl_like.training.window import oldest_draw
from verl_like.training.window_trainer import WindowTrainer


class OneStepOffTrainer(WindowTrainer):
    """Learns from whole batches in the order in which they were drawn."""

    choose = staticmethod(oldest_draw)
