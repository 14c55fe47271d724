"""Supervised training: the warm start of a policy, on the same workers as reinforcement learning."""

from __future__ import annotations

import numpy as np

from verl_like.config.schema import Config
from verl_like.ops.partition import partition
from verl_like.protocol import DataProto
from verl_like.single_controller.errors import INTERRUPT
from verl_like.single_controller.remote_batch import RemoteBatch
from verl_like.telemetry.ledger import LEDGER, stage
from verl_like.telemetry.trackers import Trackers
from verl_like.trainer.step_metrics import Metrics, StepMetrics
from verl_like.workers.groups import ActorGroup


class SftTrainer:
    """Minimises the mean negative log-prob of the answers; one optimiser update a step.

    Args:
        rows: prompt_ids, response_ids and response_mask of all training rows.
    """

    def __init__(self, config: Config, actor: ActorGroup, rows: DataProto, trackers: Trackers, *, total_steps: int, ranks: int) -> None:
        self._config, self._actor, self._trackers, self._total_steps, self._ranks = config, actor, trackers, total_steps, ranks
        tokens = rows.ragged("prompt_ids").lengths + rows.ragged("response_ids").lengths
        self._rows = RemoteBatch.put(rows, {"tokens": tokens})

    def fit(self) -> float:
        """Run all steps, or up to Ctrl-C; returns the last step's loss in nats per token."""
        loss = float("nan")
        for step in range(1, self._total_steps + 1):
            metrics = self.step(step)
            loss = metrics["sft/loss"]
            self._trackers.log(step, metrics)
            if INTERRUPT.is_set():
                break
        return loss

    def step(self, step: int) -> Metrics:
        """One update on ``data.train_batch_size`` rows."""
        LEDGER.take()
        metrics = StepMetrics()
        with stage("prompts"):
            batch = self._rows.select(self._indices(step))
            tokens = batch.facts["tokens"]
        with stage("update_actor"):
            metrics.add_mean(self._actor.supervise(batch, partition(tokens, self._ranks)))
        metrics.add({"perf/tokens": float(tokens.sum())})
        return metrics.finish(LEDGER.take())

    def _indices(self, step: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Rows of a step: each epoch is a permutation of its own, so a step's rows follow from its number alone."""
        size, num_rows = self._config.data.train_batch_size, len(self._rows)
        per_epoch = num_rows // size
        epoch, position = divmod(step - 1, per_epoch)
        order = np.random.default_rng((self._config.trainer.seed, epoch)).permutation(num_rows)
        return order[position * size : (position + 1) * size]
