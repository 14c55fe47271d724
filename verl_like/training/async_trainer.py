"""The schedule async: groups of samples are learnt from in the order in which they finish."""

from __future__ import annotations

from verl_like.training.window import first_finished
from verl_like.training.window_trainer import WindowTrainer


class AsyncTrainer(WindowTrainer):
    """Learns from a batch as soon as enough groups have finished, of whichever draws they are."""

    choose = staticmethod(first_finished)
