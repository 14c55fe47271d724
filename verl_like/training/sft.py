"""Supervised training: the warm start of a policy, on the same workers as reinforcement learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from verl_like.config.schema import Config
from verl_like.controller.errors import INTERRUPT
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.loader import refuse_other_rows
from verl_like.data.samplers import EpochSampler
from verl_like.ops.partition import partition
from verl_like.protocol import DataProto
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Saves
from verl_like.telemetry.ledger import LEDGER, stage
from verl_like.telemetry.trackers import Trackers
from verl_like.training.process_metrics import ProcessBooks
from verl_like.training.profiling import Profiles
from verl_like.training.step_metrics import Metrics, StepMetrics
from verl_like.workers.groups import ActorGroup


class SftTrainer:
    """Minimises the mean negative log-prob of the answers; one optimiser update a step.

    Args:
        rows: prompt_ids, response_ids and response_mask of all training rows; at least ``data.train_batch_size``.
        sampler: chooses the rows of each step, which follow from its number alone.
        identity: what a step's number is a position in.
    """

    def __init__(
        self,
        config: Config,
        actor: ActorGroup,
        rows: DataProto,
        sampler: EpochSampler,
        trackers: Trackers,
        checkpoints: Checkpoints,
        *,
        books: ProcessBooks,
        profiles: Profiles,
        total_steps: int,
        ranks: int,
        identity: dict[str, Any],
    ) -> None:
        self._config, self._actor, self._trackers, self._total_steps, self._ranks = (
            config,
            actor,
            trackers,
            total_steps,
            ranks,
        )
        self._sampler, self._identity = sampler, identity
        tokens = rows.ragged("prompt_ids").lengths + rows.ragged("response_ids").lengths
        self._rows = RemoteBatch.put(rows, {"tokens": tokens})
        self._checkpoints, self._books, self._profiles = checkpoints, books, profiles
        self._saves = Saves(
            checkpoints,
            actor=actor,
            critic=None,
            is_async=config.trainer.async_save,
            timeout_s=config.trainer.stage_timeout_s,
        )

    def fit(self) -> int:
        """Run to the last step, or to Ctrl-C; either way the newest state is in a checkpoint. Returns the last finished
        step.
        """
        step = self._resume()
        with self._saves:
            step = self._take_steps(step)
        self._books.write_table()
        return step

    def _take_steps(self, step: int) -> int:
        """The steps behind this one; returns the last."""
        while step < self._total_steps and not INTERRUPT.is_set():
            step += 1
            with self._profiles.of(step):
                metrics = self.step(step)
            self._trackers.log(step, metrics | self._saves.take_metrics())
            self._saves.look()
            every = self._config.trainer.save_freq
            if every > 0 and step % every == 0:
                self._save(step)
        if step != self._saves.step:
            self._save(step)
        return step

    def _resume(self) -> int:
        """Continue from the checkpoint that ``trainer.resume`` names, if there is one; returns its step, else 0.

        Raises:
            ValueError: it has seen other rows.
        """
        path = self._checkpoints.find(self._config.trainer.resume)
        state: dict[str, Any] = load_state(path) if path is not None else {"step": 0}
        if "dataset" in state:  # older checkpoints lack it, and continue
            refuse_other_rows(self._identity, checkpoint=state["dataset"])
        if path is not None:
            self._actor.load(str(path / "actor"), state["weight_version"])
            if self._checkpoints.holds(path):
                self._saves.step = int(state["step"])
                if "jsonl" in self._config.trainer.loggers:
                    RunFolder(self._config).warn_of_lost_metrics(self._saves.step)
        self._sampler.load_state_dict({"given": state["step"]})
        self._trackers.truncate_after(state["step"])
        self._books.truncate_after(state["step"])
        return int(state["step"])

    def _save(self, step: int) -> None:
        with stage("checkpoint"):
            state = {"job": "sft", "step": step, "weight_version": step, "dataset": self._identity}
            self._saves.save(state, is_best=False)

    def step(self, step: int) -> Metrics:
        """One update on ``data.train_batch_size`` rows."""
        LEDGER.take()
        metrics = StepMetrics()
        with stage("prompts"):
            batch = self._rows.select(np.array(self._sampler.next_batch()))
            tokens = batch.facts["tokens"]
        with stage("update_actor"):
            metrics.add_mean(self._actor.supervise(batch, partition(tokens, self._ranks)))
        metrics.learnt_tokens = float(tokens.sum())
        metrics.add({"perf/tokens": metrics.learnt_tokens})
        with stage("report"):
            self._books.ask()
            metrics.add(self._books.close_step(step))
        return metrics.finish(LEDGER.take())
