"""The scorer: a reward model that learns from pairs of responses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verl_like.algorithms.preference_loss import RewardModelLoss
from verl_like.backends.base import ValueEngine
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import PAIR
from verl_like.workers.setup import SEQUENCE, WorkerSetup
from verl_like.workers.updates import summary


class ScorerRole:
    """Scores texts and learns which of two is preferred; every method is collective."""

    def __init__(self, setup: WorkerSetup, engine: ValueEngine) -> None:
        config = setup.config
        self._engine, self._loss = engine, RewardModelLoss(config.rm)
        self._learner = engine.learner(
            config.actor.optim, total_updates=setup.actor_updates, max_response_tokens=config.data.max_response_length
        )
        self._timeout_s = config.trainer.stage_timeout_s
        self._unwritten: Callable[[], None] | None = None

    @dispatch(Dispatch.SPLIT)
    def update(self, rows: RemoteRows) -> tuple[dict[str, float], None]:
        """Make one update on these pairs."""
        table = rows.fetch([*SEQUENCE, PAIR, "is_chosen", "margin"], timeout_s=self._timeout_s)
        self._learner.onload()
        return summary([self._learner.update(table, self._loss)], prefix="rm/"), None

    @dispatch(Dispatch.SPLIT)
    def scores(self, rows: RemoteRows) -> tuple[NDArray[np.float32], None]:
        """Return each row's score, [n]."""
        table = rows.fetch(SEQUENCE, timeout_s=self._timeout_s)
        self._engine.onload()
        return self._engine.forward_values(table)[table.ragged("response_mask").values], None

    @dispatch(Dispatch.BROADCAST)
    def save(self, path: str) -> None:
        self._learner.save(Path(path))

    @dispatch(Dispatch.BROADCAST)
    def begin_save(self, path: str) -> None:
        """Copy what :meth:`save` writes; :meth:`write` writes the copy."""
        self._unwritten = self._learner.begin_save(Path(path))

    @dispatch(Dispatch.BROADCAST)
    def write(self) -> None:
        """Write what :meth:`begin_save` has copied, in parallel with other calls."""
        assert self._unwritten is not None, "write was called without begin_save"
        write, self._unwritten = self._unwritten, None
        write()

    @dispatch(Dispatch.BROADCAST)
    def load(self, path: str) -> None:
        self._learner.onload()
        self._learner.load(Path(path))

    @dispatch(Dispatch.BROADCAST)
    def export(self, path: str) -> None:
        """Write a folder of a sequence classifier."""
        self._engine.export(Path(path))
