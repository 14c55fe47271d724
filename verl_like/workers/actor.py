"""The actor: the policy, which learns unless it is only evaluated or exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from verl_like.algorithms import correction, distillation
from verl_like.algorithms.actor_loss import ActorLoss, LogProbGap, SftLoss
from verl_like.algorithms.correction import weight_sums
from verl_like.algorithms.distillation import Distillation
from verl_like.algorithms.preference_loss import PreferenceLoss
from verl_like.backends.base import Learner, PolicyEngine
from verl_like.backends.sinks import WeightSink
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.telemetry.ledger import stage
from verl_like.workers.messages import SyncReport, UpdateShare, UpdateTerms
from verl_like.workers.response_log_probs import response_log_probs
from verl_like.workers.setup import SEQUENCE, WorkerSetup, sampled_sequence
from verl_like.workers.updates import shares, summary
from verl_like.workers.weight_source import WeightSource


class ActorRole:
    """Trains the policy and computes its log-probs; every method is collective.

    If ``setup.actor_updates`` is 0 it has only weights: no optimiser and no compiled functions.

    Args:
        sink: receives the weights at each :meth:`sync`; None if nothing generates from them.
    """

    def __init__(self, setup: WorkerSetup, engine: PolicyEngine, sink: WeightSink | None = None) -> None:
        self._setup, self.engine, self.version = setup, engine, 0
        self._source: WeightSource | None = None
        if sink is not None:
            self._source = WeightSource(
                engine, sink, sends_adapter=setup.config.syncs_adapter, has_checksum=setup.config.rollout.sync_checksum
            )
        self._timeout_s = setup.config.trainer.stage_timeout_s
        self._correction = setup.config.algorithm.rollout_correction
        self._learner: Learner | None = None
        self._teachers: list[PolicyEngine] = []  # separate models
        self._unwritten: Callable[[], None] | None = None
        self._is_compiled = self._has_compiled_layers = False
        if setup.actor_updates:
            self._learner = engine.learner(
                setup.config.actor.optim,
                total_updates=setup.actor_updates,
                max_response_tokens=setup.config.data.max_response_length,
            )
            with stage("build/compilation"):
                # Other ranks wait in a collective while the first of a node compiles.
                deadline_s = min(setup.config.cluster.start_timeout_s / 4, self._timeout_s / 2)
                self._is_compiled = engine.warm_up(deadline_s, entropy=ActorLoss(setup.config.actor).needs_entropy)
                self._has_compiled_layers = engine.compile_layers(deadline_s)
        (self._learner or engine).offload()

    def _learning(self) -> Learner:
        assert self._learner is not None, "this actor was built with actor_updates=0, so it cannot be trained"
        return self._learner

    def learn_from(self, teachers: Sequence[PolicyEngine], *, without_adapters: bool = False) -> None:
        """Let updates compare the policy with models in these workers (``algorithm.distill_loss=jsd``), its own or
        others.
        """
        self._teachers = [teacher for teacher in dict.fromkeys(teachers) if teacher is not self.engine]
        beta = self._setup.config.algorithm.distill_beta
        self.engine.distil_from(teachers, beta=beta, without_adapters=without_adapters)

    def _seed(self) -> None:
        """Seed torch's global state of an update from the run's seed, the rank and the weight version.

        None of our code draws from it, but a user's loss may. vLLM draws from it too, and its number of draws depends
        on its batches.
        """
        numbers = (self._setup.config.trainer.seed, self._setup.rank, self.version)
        torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]))

    @dispatch(Dispatch.SPLIT)
    def log_probs(self, rows: RemoteRows, *, sum_pi_squared: bool, entropy: bool) -> tuple[dict[str, float], DataProto]:
        """Return ``old_log_probs`` (and ``sum_pi_squared`` and ``entropy`` if requested), and metrics of their gap to
        the rollout's log-probs.
        """
        columns = [*sampled_sequence(self._setup.config, rows), "rollout_log_probs"]
        table = rows.fetch(columns, timeout_s=self._timeout_s)
        self.engine.onload()
        temperature = self._setup.config.rollout.temperature
        out = self.engine.forward_log_probs(
            table, temperature=temperature, sum_pi_squared=sum_pi_squared, entropy=entropy
        )
        self.engine.offload()
        mask = table.ragged("response_mask").values
        gap = LogProbGap()
        gap.add(np.abs(out["log_probs"] - table.ragged("rollout_log_probs").values)[mask])
        report = gap.report()
        if self._correction.batch_normalize:
            report |= self._weight_sums(table, out["log_probs"])
        found = {
            "old_log_probs": out["log_probs"],
            **({"sum_pi_squared": out["sum_pi_squared"]} if sum_pi_squared else {}),
            **({"entropy": out["entropy"]} if entropy else {}),
        }
        offsets = table.ragged("response_ids").offsets
        return report, DataProto({name: Ragged(values, offsets) for name, values in found.items()})

    def _weight_sums(self, table: DataProto, log_probs: NDArray[np.float32]) -> dict[str, float]:
        """Return this rank's share of the batch's mean importance weight."""
        old = Ragged(log_probs, table.ragged("response_ids").offsets)
        columns = (old, table.ragged("rollout_log_probs"), table.ragged("response_mask"))
        old_log_probs, rollout_log_probs, mask = (torch.from_numpy(column.to_padded()) for column in columns)
        sums = weight_sums(old_log_probs, rollout_log_probs, mask, self._correction)
        return {"weight_sum": sums.total, "weight_count": float(sums.count)}

    @dispatch(Dispatch.SPLIT)
    def update(self, rows: RemoteRows, share: UpdateShare, terms: UpdateTerms) -> tuple[dict[str, float], None]:
        """Make ``actor.epochs`` passes over this rank's mini-batches; the weight version increases by one."""
        config, learner = self._setup.config.actor, self._learning()
        columns = [*sampled_sequence(self._setup.config, rows), *terms.columns]
        fetched = rows.fetch(columns, timeout_s=self._timeout_s)
        table = DataProto({**fetched.columns, **share.columns(fetched.ragged("response_mask"))})
        gap = None if "old_log_probs" in terms.columns else LogProbGap()
        loss = ActorLoss(
            config,
            self._correction if terms.is_corrected else None,
            mean_weight=terms.mean_weight,
            gap=gap,
            distillation=Distillation.of(self._setup.config.algorithm, list(self._setup.config.ref.teachers)),
        )
        models: list[Learner | PolicyEngine] = [learner, *self._teachers]
        for model in models:
            model.onload()
        self._seed()
        updates = [learner.update(part, loss) for part in shares(table, share.mini_batches, config.epochs)]
        for model in models:
            model.offload()
        self.version += 1
        metrics = correction.finish(summary(updates, prefix="actor/"), prefix="actor/")
        metrics = distillation.finish(metrics, prefix="actor/")
        states = {
            "actor/is_compiled": float(self._is_compiled),
            "actor/has_compiled_layers": float(self._has_compiled_layers),
            "actor/is_corrected": float(terms.is_corrected),
        }
        return {**metrics, **states, **({} if gap is None else gap.report()), **self._routing_report()}, None

    def _routing_report(self) -> dict[str, float]:
        """Return counts that the driver sums over ranks; none without router replay."""
        num_other, num_given = self.engine.take_routing_difference()
        return {"routing_other": float(num_other), "routing_given": float(num_given)} if num_given else {}

    @dispatch(Dispatch.SPLIT)
    def supervise(self, rows: RemoteRows) -> tuple[dict[str, float], None]:
        """Make one supervised update on these rows."""
        table, learner = rows.fetch(SEQUENCE, timeout_s=self._timeout_s), self._learning()
        learner.onload()  # and no offload: nothing else needs the accelerator
        self._seed()
        updates = [learner.update(table, SftLoss())]
        self.version += 1
        return summary(updates, prefix="actor/"), None

    @dispatch(Dispatch.SPLIT)
    def prefer(
        self, rows: RemoteRows, ref_log_prob: NDArray[np.float32], loss: PreferenceLoss
    ) -> tuple[dict[str, float], None]:
        """Make one update on these responses.

        Args:
            ref_log_prob: [n], the reference's log-prob of each row's response, nats.
        """
        table, learner = rows.fetch([*SEQUENCE, *loss.columns], timeout_s=self._timeout_s), self._learning()
        table = DataProto({**table.columns, "ref_log_prob": ref_log_prob})
        learner.onload()
        self._seed()
        updates = [learner.update(table, loss)]
        self.version += 1
        return summary(updates, prefix="actor/"), None

    @dispatch(Dispatch.SPLIT)
    def response_log_probs(self, rows: RemoteRows, *, without_adapters: bool) -> tuple[NDArray[np.float64], None]:
        """Return the sum of the log-probs of each row's learnt tokens, [n] nats, at temperature 1."""
        table = rows.fetch(SEQUENCE, timeout_s=self._timeout_s)
        return response_log_probs(self.engine, table, without_adapters=without_adapters), None

    @dispatch(Dispatch.BROADCAST)
    def sync(self) -> SyncReport:
        """Send the weights to the sink, which then generates from them."""
        assert self._source is not None, "this actor was built without a sink, so it cannot send its weights"
        return self._source.send(self.version)

    @dispatch(Dispatch.BROADCAST)
    def save(self, path: str) -> None:
        self._learning().save(Path(path))

    @dispatch(Dispatch.BROADCAST)
    def begin_save(self, path: str) -> None:
        """Copy what :meth:`save` writes; :meth:`write` writes the copy."""
        self._unwritten = self._learning().begin_save(Path(path))

    @dispatch(Dispatch.BROADCAST)
    def write(self) -> None:
        """Write what :meth:`begin_save` has copied, in parallel with other calls."""
        assert self._unwritten is not None, "write was called without begin_save"
        write, self._unwritten = self._unwritten, None
        write()

    @dispatch(Dispatch.BROADCAST)
    def load(self, path: str, version: int) -> None:
        """Read a checkpoint: all of it if this actor learns, otherwise only the weights."""
        loading = self._learner or self.engine
        loading.onload()
        loading.load(Path(path))
        loading.offload()
        self.version = version

    @dispatch(Dispatch.BROADCAST)
    def export(self, path: str) -> None:
        self.engine.export(Path(path))

    @dispatch(Dispatch.BROADCAST)
    def export_adapter(self, path: str) -> None:
        self.engine.export_adapter(Path(path))
