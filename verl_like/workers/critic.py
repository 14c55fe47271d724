"""The critic: the value model of PPO."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from verl_like.algorithms.critic_loss import CriticLoss
from verl_like.backends.base import ValueEngine
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.setup import SEQUENCE, WorkerSetup
from verl_like.workers.updates import MiniBatches, shares, summary


class CriticRole:
    """Computes values and updates the value model; every method is collective."""

    def __init__(self, setup: WorkerSetup, engine: ValueEngine) -> None:
        self._setup, self._engine = setup, engine
        self._learner = engine.learner(
            setup.config.critic.optim,
            total_updates=setup.critic_updates,
            max_response_tokens=setup.config.data.max_response_length,
        )
        self._timeout_s = setup.config.trainer.stage_timeout_s
        self._learner.offload()
        self._unwritten: Callable[[], None] | None = None

    @dispatch(Dispatch.SPLIT)
    def values(self, rows: RemoteRows) -> tuple[None, DataProto]:
        table = rows.fetch(SEQUENCE, timeout_s=self._timeout_s)
        self._engine.onload()
        values = self._engine.forward_values(table)
        self._engine.offload()
        return None, DataProto({"values": Ragged(values, table.ragged("response_ids").offsets)})

    @dispatch(Dispatch.SPLIT)
    def update(self, rows: RemoteRows, mini_batches: MiniBatches) -> tuple[dict[str, float], None]:
        """Make ``critic.epochs`` passes over this rank's mini-batches."""
        config = self._setup.config.critic
        table = rows.fetch([*SEQUENCE, "values", "returns"], timeout_s=self._timeout_s)
        loss = CriticLoss(config)
        self._learner.onload()
        updates = [self._learner.update(share, loss) for share in shares(table, mini_batches, config.epochs)]
        self._learner.offload()
        return summary(updates, prefix="critic/"), None

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
        self._learner.offload()
