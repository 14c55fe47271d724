"""The actor: the policy that learns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from verl_like.algorithms.actor_loss import ActorLoss, SftLoss
from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.backends.base import TrainEngine
from verl_like.protocol import DataProto, Ragged
from verl_like.single_controller.dispatch import Dispatch, dispatch
from verl_like.single_controller.remote_batch import RemoteRows
from verl_like.workers.setup import SEQUENCE, WorkerSetup
from verl_like.workers.updates import MiniBatches, run_updates


class LogProbGap:
    """How far the trainer's log-probs are from the engine's, over the tokens this rank has seen."""

    def __init__(self) -> None:
        self.total, self.maximum, self.count = 0.0, 0.0, 0

    def add(self, gap: Any) -> None:
        """``gap`` [K]: absolute differences in nats."""
        if gap.size:
            self.total += float(gap.sum(dtype=np.float64))
            self.maximum = max(self.maximum, float(gap.max()))
            self.count += int(gap.size)

    def report(self) -> dict[str, float]:
        return {"gap_sum": self.total, "gap_max": self.maximum, "gap_count": float(self.count)}


class _OnPolicyLoss:
    """The actor loss of a batch that makes one update: old log-probs are this forward's, and the gap is measured in passing."""

    def __init__(self, loss: ActorLoss, gap: LogProbGap) -> None:
        self._loss, self._gap = loss, gap

    @property
    def needs_entropy(self) -> bool:
        return self._loss.needs_entropy

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        log_probs = outputs["log_probs"].detach()
        self._gap.add((log_probs - columns["rollout_log_probs"]).abs()[columns["response_mask"]].cpu().numpy())
        return self._loss(outputs, {**columns, "old_log_probs": log_probs}, totals)


class ActorRole:
    """Calls that need the policy's training engine; every method is collective."""

    def __init__(self, setup: WorkerSetup, engine: TrainEngine) -> None:
        self._setup, self.engine, self.version = setup, engine, 0
        self._timeout_s = setup.config.trainer.stage_timeout_s
        self._is_compiled = engine.warm_up(setup.config.cluster.start_timeout_s / 2, entropy=setup.config.actor.entropy_coef > 0)

    @dispatch(Dispatch.SPLIT)
    def log_probs(self, rows: RemoteRows) -> tuple[dict[str, float], DataProto]:
        """``old_log_probs`` and, for the report, their gap to the rollout's."""
        table = rows.fetch([*SEQUENCE, "rollout_log_probs"], timeout_s=self._timeout_s)
        self.engine.onload()
        out = self.engine.forward_log_probs(table, temperature=self._setup.config.rollout.temperature)
        self.engine.offload()
        mask = table.ragged("response_mask").values
        gap = LogProbGap()
        gap.add(np.abs(out["log_probs"] - table.ragged("rollout_log_probs").values)[mask])
        column = Ragged(out["log_probs"], table.ragged("response_ids").offsets)
        return gap.report(), DataProto({"old_log_probs": column})

    @dispatch(Dispatch.SPLIT)
    def update(self, rows: RemoteRows, mini_batches: MiniBatches, columns: list[str]) -> tuple[dict[str, float], None]:
        """``actor.epochs`` passes over this rank's mini-batches; the weight version rises by one.

        Args:
            mini_batches: for each mini-batch the positions, among ``rows``, of this rank's share.
            columns: token columns the loss reads besides the sequence.
        """
        config = self._setup.config.actor
        table = rows.fetch([*SEQUENCE, *columns], timeout_s=self._timeout_s)
        gap = LogProbGap()
        is_on_policy = "old_log_probs" not in columns
        loss = ActorLoss(config)
        self.engine.onload()
        metrics = run_updates(self.engine, table, mini_batches, config.epochs, _OnPolicyLoss(loss, gap) if is_on_policy else loss,
                              prefix="actor/")
        self.engine.offload()
        self.version += 1
        return {**metrics, "actor/is_compiled": float(self._is_compiled), **(gap.report() if is_on_policy else {})}, None

    @dispatch(Dispatch.SPLIT)
    def supervise(self, rows: RemoteRows) -> tuple[dict[str, float], None]:
        """One supervised update on these rows."""
        table = rows.fetch(SEQUENCE, timeout_s=self._timeout_s)
        everything = [np.arange(len(table))]
        metrics = run_updates(self.engine, table, everything, 1, SftLoss(), prefix="actor/")
        self.version += 1
        return metrics, None

    @dispatch(Dispatch.BROADCAST)
    def save(self, path: str) -> None:
        self.engine.save(Path(path))

    @dispatch(Dispatch.BROADCAST)
    def load(self, path: str, version: int) -> None:
        self.engine.load(Path(path))
        self.version = version

    @dispatch(Dispatch.BROADCAST)
    def export(self, path: str) -> None:
        self.engine.export(Path(path))
