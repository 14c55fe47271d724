"""FsdpLearner: optimiser, schedule and updates of a sharded model; LearningEngine: the engine that creates one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl_like.algorithms.types import BatchTotals, MicroBatchLoss
from verl_like.backends.fsdp.checkpoint import begin_checkpoint, load_checkpoint, save_checkpoint
from verl_like.backends.fsdp.collectives import summed
from verl_like.backends.fsdp.engine import FsdpEngine, Model
from verl_like.backends.fsdp.micro_batches import (
    agree,
    aligned_columns,
    learned_counts,
    padded_columns,
    row_columns,
    taken_columns,
)
from verl_like.backends.fsdp.offload import HostCopies
from verl_like.backends.fsdp.optim import build_optimizer, build_schedule, clip_grad_norm
from verl_like.backends.fsdp.sequence_parallel import shared_rows
from verl_like.backends.fsdp.state_copies import StateCopies
from verl_like.config.schema import OptimConfig
from verl_like.protocol import DataProto

log = logging.getLogger(__name__)


class FsdpLearner:
    """The Learner of :mod:`verl_like.backends.base`, with the arguments of ``ForwardEngine.learner``.

    Raises:
        ValueError: for a schedule whose end is not known.
    """

    def __init__(
        self, engine: FsdpEngine[Any], optim: OptimConfig, *, total_updates: int, max_response_tokens: int
    ) -> None:
        assert not engine.settings.is_frozen, "a frozen model has no float32 master weights to update"
        self.engine, self._optim, self._max_response_tokens = engine, optim, max_response_tokens
        self.optimizer = build_optimizer(engine.module, optim)
        self.schedule = build_schedule(self.optimizer, optim, total_updates)
        self._host = HostCopies(engine.device) if optim.offload and engine.device.type == "cuda" else None
        self._copies: StateCopies | None = None  # of a run that writes checkpoints in the background

    def update(self, rows: DataProto, loss: MicroBatchLoss) -> dict[str, float]:
        """Implement ``Learner.update``.

        If no rank has a token to learn from, the weights stay unchanged, as with a gradient that is not finite. The
        schedule counts only the updates that were made.
        """
        engine, device = self.engine, self.engine.device
        counts = learned_counts(rows)
        if len(rows):
            rows = rows.select_idxs(loss.moves_weights(rows))
        rows, _ = shared_rows(rows, engine.sequence_ranks)
        plan = engine.plan(rows)
        ranks = agree(plan, device=device, counts=counts)
        if ranks.num_tokens == 0:
            log.warning("no rank has a response token to learn from; this update is skipped")
            return {"grad_norm": 0.0, "lr": self._lr(), "skipped_updates": 1.0}
        totals = BatchTotals(
            num_tokens=ranks.num_tokens,
            num_sequences=ranks.num_sequences,
            num_prompts=ranks.num_prompts,
            max_response_tokens=self._max_response_tokens,
        )
        columns, of_rows = (aligned_columns(rows), row_columns(rows)) if len(rows) else ({}, {})
        metrics: dict[str, Tensor] = {}
        # If no row moves the weights there is one empty pass: the optimiser still gets gradients, which are zero.
        num_passes = ranks.num_passes if engine.makes_equal_passes else plan.num_passes
        num_passes = num_passes if any(num_passes) else [1, *num_passes[1:]]
        for index, batch in enumerate(plan.passes(num_passes)):
            engine.layout.expect_backward(is_last=index == sum(num_passes) - 1)
            outputs = engine.outputs(batch, entropy=loss.needs_entropy)
            if not len(batch.rows):
                # Every parameter gets a zero gradient, so that this rank takes part in every reduction.
                (torch.stack([output.sum() for output in outputs.values()]).sum() * 0.0).backward()
                continue
            of_pass = padded_columns(columns, batch.rows, device=device)
            of_pass |= taken_columns(of_rows, batch.rows, device=device)
            share = loss(outputs, of_pass, totals)
            auxiliary = engine.auxiliary_loss(totals)
            (share.loss if auxiliary is None else share.loss + auxiliary).backward()
            if auxiliary is not None:
                share.metrics["moe/aux_loss"] = auxiliary.detach()
            for name, value in share.metrics.items():
                # Ranks that share rows all compute the same metrics.
                own = value.detach().double() / engine.settings.sequence_parallel_size
                metrics[name] = metrics.get(name, 0.0) + own
        engine.layout.reduce_gradients()
        found = summed(metrics, ranks_with_any=ranks.ranks_with_rows, device=device)
        return {**found, **self._step()}

    def _step(self) -> dict[str, float]:
        """Move the weights by the gradients, unless these are not finite; return metrics of the update."""
        lr = self._lr()
        for parameter in self.engine.module.parameters():
            if parameter.requires_grad and parameter.grad is None:  # no row of the mini-batch has a picture
                parameter.grad = torch.zeros_like(parameter)
        grad_norm = clip_grad_norm(self.engine.module.parameters(), self._optim.max_grad_norm)
        is_finite = bool(np.isfinite(grad_norm))
        if is_finite:
            if self._host is not None:  # not earlier: there may be no memory for it while activations exist
                self._host.move_in(self.optimizer)
            self.optimizer.step()
            self.schedule.step()
            if self._host is not None:
                self._host.move_out(self.optimizer)
        else:
            log.warning("the gradient norm is %s; the weights are not changed", grad_norm)
        self.optimizer.zero_grad(set_to_none=True)
        balance = self.engine.rebalance(has_moved=is_finite)
        return {"grad_norm": grad_norm, "lr": lr, "skipped_updates": float(not is_finite), **balance}

    def _lr(self) -> float:
        return float(self.schedule.get_last_lr()[0])

    def save(self, path: Path) -> None:
        """Implement ``Learner.save``."""
        save_checkpoint(path, module=self.engine.module, optimizer=self.optimizer, schedule=self.schedule)

    def begin_save(self, path: Path) -> Callable[[], None]:
        """Implement ``Learner.begin_save``."""
        engine = self.engine
        if self._copies is None:
            self._copies = StateCopies(engine.device, timeout_s=engine.settings.timeout_s)
        return begin_checkpoint(
            path, self._copies, module=engine.module, optimizer=self.optimizer, schedule=self.schedule
        )

    def load(self, path: Path) -> None:
        """Implement ``Learner.load``; the number of ranks may differ."""
        if self._host is not None:
            self._host.move_in(self.optimizer)
        load_checkpoint(path, module=self.engine.module, optimizer=self.optimizer, schedule=self.schedule)

    def offload(self) -> None:
        """Implement ``Learner.offload``; does nothing on CPU."""
        if self._host is not None:
            self._host.move_out(self.optimizer)
        self.engine.offload()

    def onload(self) -> None:
        """Implement ``Learner.onload``; does nothing on CPU. Offloaded optimiser state is moved in by each step."""
        self.engine.onload()


class LearningEngine(FsdpEngine[Model]):
    """An FsdpEngine whose weights can learn."""

    def learner(self, optim: OptimConfig, *, total_updates: int, max_response_tokens: int) -> FsdpLearner:
        """Implement ``ForwardEngine.learner``."""
        return FsdpLearner(self, optim, total_updates=total_updates, max_response_tokens=max_response_tokens)
