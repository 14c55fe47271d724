"""The driver's interface: one typed facade per role of the hybrid workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np

from verl_like.algorithms.preference_loss import PreferenceLoss
from verl_like.backends.base import Sampling
from verl_like.config.schema import RolloutConfig
from verl_like.controller.errors import RunError
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import (
    EPISODE_ROW,
    EXPERTS,
    RESPONSE_FEATURES,
    TEACHER,
    Array,
    episode_numbers,
    over_episode,
    sampled_tokens,
)
from verl_like.workers.actor import ActorRole
from verl_like.workers.advantages import AdvantageRole
from verl_like.workers.assignment import Assignment, ResponseLengths, assigned_by_queue, assigned_in_advance
from verl_like.workers.critic import CriticRole
from verl_like.workers.generator import GeneratorRole
from verl_like.workers.group_blocks import CANDIDATE_COLUMNS, ROLLOUT_COLUMNS, TEACHER_COLUMNS, TURN_COLUMNS
from verl_like.workers.messages import AdvantageReport, RowRewards, SyncReport, UpdateShare, UpdateTerms
from verl_like.workers.ref import RefRole
from verl_like.workers.scorer import ScorerRole
from verl_like.workers.teachers import TeachersRole

Partition = Sequence[Array]
Reports = list[dict[str, float]]


class SavedGroup:
    """Saves what the ranks of a role hold."""

    _role: ClassVar[Any]  # has save, begin_save and write

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group

    def save(self, path: str) -> None:
        self._group.call(self._role.save, path)

    def begin_save(self, path: str) -> None:
        """Copy the state to save; the call returns before it is written."""
        self._group.call(self._role.begin_save, path)

    def write(self, check: Callable[[], None]) -> None:
        """Write the copies in parallel with other calls, on another thread.

        Args:
            check: called periodically; an exception that it raises ends the wait.
        """
        self._group.call_in_background(self._role.write, stage="checkpoint", check=check)


class LoadedGroup(SavedGroup):
    """Also loads it; a role without weight versions."""

    def load(self, path: str) -> None:
        self._group.call(self._role.load, path)


class ActorGroup(SavedGroup):
    _role = ActorRole

    def add_log_probs(
        self, batch: RemoteBatch, partition: Partition, *, sum_pi_squared: bool = False, entropy: bool = False
    ) -> Reports:
        """Attach ``old_log_probs``, and ``sum_pi_squared`` and ``entropy`` if requested."""
        adds = frozenset({"old_log_probs", *["sum_pi_squared"] * sum_pi_squared, *["entropy"] * entropy})
        return self._group.map_rows(
            ActorRole.log_probs,
            batch,
            partition,
            adds=adds,
            interruptible=True,
            sum_pi_squared=sum_pi_squared,
            entropy=entropy,
        )

    def update(
        self, batch: RemoteBatch, partition: Partition, mini_batches: Sequence[Sequence[Array]], terms: UpdateTerms
    ) -> Reports:
        """Update on every mini-batch; ``mini_batches[rank][m]`` are positions among the rank's rows.

        Advantages come from the batch's fact ``advantage`` if it has one, otherwise from its column.
        """
        advantages, counts = batch.facts.get("advantage"), count_columns(batch)
        shares = [
            UpdateShare(
                mini_batches=own,
                advantages=None if advantages is None else advantages[rows],
                counts={name: values[rows] for name, values in counts.items()},
            )
            for rows, own in zip(partition, mini_batches, strict=True)
        ]
        return self._group.map_rows(ActorRole.update, batch, partition, terms, per_rank=shares)

    def supervise(self, batch: RemoteBatch, partition: Partition) -> Reports:
        return self._group.map_rows(ActorRole.supervise, batch, partition)

    def prefer(self, batch: RemoteBatch, partition: Partition, loss: PreferenceLoss) -> Reports:
        """Make one update on these responses, with the fact ``ref_log_prob``."""
        shares = [batch.facts["ref_log_prob"][rows].astype(np.float32) for rows in partition]
        return self._group.map_rows(ActorRole.prefer, batch, partition, loss, per_rank=shares)

    def response_log_probs(self, batch: RemoteBatch, partition: Partition, *, without_adapters: bool = False) -> Array:
        """Return the log-prob of each row's response, [B] float64 nats."""
        found = self._group.map_rows(
            ActorRole.response_log_probs, batch, partition, without_adapters=without_adapters, interruptible=True
        )
        return in_order(found, partition)

    def load(self, path: str, version: int) -> None:
        self._group.call(ActorRole.load, path, version)

    def export(self, path: str, *, adapter: bool = False) -> None:
        """Write the policy as a Hugging Face folder, or only its LoRA adapter as a peft folder."""
        self._group.call(ActorRole.export_adapter if adapter else ActorRole.export, path)


def in_order(of_ranks: Sequence[Array], partition: Partition) -> Array:
    """Return the values of each rank's rows in the order of the batch."""
    values: Array = np.concatenate(of_ranks)
    return values[np.argsort(np.concatenate(partition))]


def count_columns(batch: RemoteBatch) -> dict[str, Array]:
    """Return the columns by which a loss counts the responses to a prompt, and the rows of an episode as one sequence;
    and each row's teacher, if there are several.

    A mini-batch has all rows of a group or none, so a group's tokens in the batch are those in its mini-batch.
    """
    tokens, groups = sampled_tokens(batch.facts), batch.facts["group_id"]
    columns = {"group_tokens": np.bincount(groups, weights=tokens).astype(np.int64)[groups]}
    if TEACHER in batch.facts:
        columns[TEACHER] = batch.facts[TEACHER]
    if EPISODE_ROW in batch.facts:
        of_episodes = over_episode(tokens, episode_numbers(batch.facts)).astype(np.int64)
        columns |= {EPISODE_ROW: batch.facts[EPISODE_ROW], "episode_tokens": of_episodes}
    return columns


class RefGroup(LoadedGroup):
    _role = RefRole

    def response_log_probs(self, batch: RemoteBatch, partition: Partition) -> Array:
        """Return the log-prob of each row's response, [B] float64 nats."""
        found = self._group.map_rows(RefRole.response_log_probs, batch, partition, interruptible=True)
        return in_order(found, partition)

    def add_log_probs(self, batch: RemoteBatch, partition: Partition) -> None:
        """Attach ``ref_log_probs``."""
        self._group.map_rows(
            RefRole.ref_log_probs, batch, partition, adds=frozenset({"ref_log_probs"}), interruptible=True
        )

    def reset(self, *, weight: float = 1.0) -> None:
        """Take the actor's weights, or average with them: they have this weight, from 0 to 1."""
        self._group.call(RefRole.reset, weight)


class TeachersGroup(RefGroup):
    """The reference of a run whose rows name one of several teachers; nothing resets, saves or loads its models."""

    def add_log_probs(self, batch: RemoteBatch, partition: Partition) -> None:
        """Attach ``ref_log_probs``, each row's by the teacher in the fact ``teacher``."""
        teachers = batch.facts[TEACHER]
        self._group.map_rows(
            TeachersRole.ref_log_probs,
            batch,
            partition,
            adds=frozenset({"ref_log_probs"}),
            per_rank=[teachers[rows] for rows in partition],
            used=np.unique(teachers).tolist(),
            interruptible=True,
        )


class CriticGroup(LoadedGroup):
    _role = CriticRole

    def add_values(self, batch: RemoteBatch, partition: Partition) -> None:
        """Attach ``values``."""
        self._group.map_rows(CriticRole.values, batch, partition, adds=frozenset({"values"}), interruptible=True)

    def update(self, batch: RemoteBatch, partition: Partition, mini_batches: Sequence[Sequence[Array]]) -> Reports:
        return self._group.map_rows(CriticRole.update, batch, partition, per_rank=mini_batches)


class ScorerGroup(LoadedGroup):
    """The reward model that learns."""

    _role = ScorerRole

    def update(self, batch: RemoteBatch, partition: Partition) -> Reports:
        """Make one update on these pairs."""
        return self._group.map_rows(ScorerRole.update, batch, partition)

    def scores(self, batch: RemoteBatch, partition: Partition) -> Array:
        """Return each row's score, [B] float32."""
        return in_order(self._group.map_rows(ScorerRole.scores, batch, partition, interruptible=True), partition)

    def export(self, path: str) -> None:
        """Write the model as a Hugging Face folder of a sequence classifier."""
        self._group.call(ScorerRole.export, path)


class AdvantageGroup:
    """The single process that computes advantages over the whole batch."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group

    def add(
        self, batch: RemoteBatch, blocks: Sequence[Array], earned: RowRewards, *, adds: frozenset[str], kl_coef: float
    ) -> tuple[Facts, dict[str, float]]:
        """Attach the columns ``adds`` (see :meth:`AdvantageRole.advantages`) in blocks of these rows.

        Returns:
            The facts ``has_advantage``, ``advantage_mean``, ``advantage_min`` and ``advantage_max``, and metrics.
        """
        reports: list[AdvantageReport] = self._group.map_rows(
            AdvantageRole.advantages,
            batch,
            [np.arange(len(batch))],
            earned,
            adds=adds,
            blocks=blocks,
            interruptible=True,
            kl_coef=kl_coef,
        )
        [report] = reports
        facts = {
            "has_advantage": report.has_advantage,
            "advantage_mean": report.advantage_mean,
            "advantage_min": report.advantage_min,
            "advantage_max": report.advantage_max,
        }
        return facts, report.metrics


class Generator(Protocol):
    """The rollout engines, wherever they are."""

    def columns_of(self, prompts: RemoteBatch, facts: Facts) -> frozenset[str]:
        """Return the columns of the blocks that :meth:`generate` yields for these prompts."""

    def generate(
        self, prompts: RemoteBatch, *, n: int, sampling: Sampling, step: int, version: int, first_sample: int
    ) -> Iterator[tuple[Facts, BlockRef]]:
        """Yield (facts, block) pairs as groups finish; the prompts must have the fact ``uid``.

        Args:
            version: version of the weights that the engines must hold.
        """

    def sync_after_next(self) -> bool:
        """Let the actor's processes begin the sync right after their next update; :meth:`sync` waits for it.

        Returns:
            False if they cannot, because the engines are in other processes or aggregators call the ranks.
        """

    def sync(self) -> SyncReport:
        """Send the actor's weights to the engines.

        The report has the lowest version and the longest times of all ranks; its other fields are those of one rank.

        Raises:
            RunError: ranks sent or received different weights (``rollout.sync_checksum``).
        """

    def sleep(self) -> None:
        """Free accelerator memory for training, if engines share it; the next sync wakes them."""


class RolloutGroup:
    """The rollout engines in the workers that train.

    Args:
        group: the workers that generate.
        rollout: gives the number of ranks per engine and of sequences that an engine runs at once.
        assigns_by_queue: whether engines take prompts when they have capacity, those with the longest responses first.
        node_of_rank: the node of each rank of this group, numbered like the nodes of the training ranks; -1 if no
            training rank runs on it. None if all ranks are on one node.
    """

    def __init__(
        self,
        group: WorkerGroup,
        rollout: RolloutConfig,
        *,
        assigns_by_queue: bool = False,
        node_of_rank: Sequence[int] | None = None,
    ) -> None:
        self._group, self._rollout, self._assigns_by_queue = group, rollout, assigns_by_queue
        self._node_of_rank = None if node_of_rank is None else np.asarray(node_of_rank)
        self._lengths = ResponseLengths()

    def columns_of(self, prompts: RemoteBatch, facts: Facts) -> frozenset[str]:
        """Return the columns of the blocks that :meth:`generate` yields for these prompts."""
        return columns_of(prompts, facts)

    def generate(
        self,
        prompts: RemoteBatch,
        *,
        n: int,
        sampling: Sampling,
        step: int,
        version: int,
        first_sample: int,
        max_lag: int = 0,
    ) -> Iterator[tuple[Facts, BlockRef]]:
        """Yield (facts, block) pairs as groups finish; the prompts must have the fact ``uid``.

        Args:
            max_lag: largest allowed difference between ``version`` and an engine's version. The fact ``weight_version``
                is the version with which each row was started. An engine outside this bound raises StaleWeightsError.
        """
        assignment = self._assignment(prompts.facts["uid"], n)
        size = self._rollout.tensor_parallel_size
        [queue] = prompts.partition([assignment.queue])
        for facts, block in self._group.stream(
            GeneratorRole.generate,
            prompts,
            [assignment.of_engine[rank // size] for rank in range(self._group.world_size)],
            n=n,
            sampling=sampling,
            step=step,
            version=version,
            first_sample=first_sample,
            queue=queue,
            max_lag=max_lag,
        ):
            if self._assigns_by_queue:
                self._lengths.learn(facts)
            yield self._with_nodes(facts), block

    def _with_nodes(self, facts: Facts) -> Facts:
        """Replace the rank that wrote each row, a number within this group, by its node."""
        writer = facts["writer"]
        node = np.zeros_like(writer) if self._node_of_rank is None else self._node_of_rank[writer]
        return {name: fact for name, fact in facts.items() if name != "writer"} | {"node": node}

    def _assignment(self, uids: Array, n: int) -> Assignment:
        engines = self._group.world_size // self._rollout.tensor_parallel_size
        if not self._assigns_by_queue or engines == 1:
            return assigned_in_advance(len(uids), engines)
        return assigned_by_queue(self._lengths.longest_first(uids), engines, most=self._rollout.num_seqs // n)

    def sync_after_next(self) -> bool:
        """Let the actor's processes begin the sync right after their next update, if no aggregators call them."""
        return self._group.call_after_next(ActorRole.sync)

    def sync(self) -> SyncReport:
        """Send the actor's weights to the engines and wake them.

        The report has the lowest version and the longest time of all ranks; its other fields are those of one rank.

        Raises:
            RunError: if ranks sent their engines different weights (``rollout.sync_checksum``).
        """
        reports: list[SyncReport] = self._group.call(ActorRole.sync)
        refuse_differing(reports)
        return replace(
            reports[0],
            version=min(report.version for report in reports),
            seconds=max(report.seconds for report in reports),
            pause_s=max(report.pause_s for report in reports),
        )

    def sleep(self) -> None:
        """Free accelerator memory as the next call begins; the next sync wakes the engines."""
        self._group.call_before_next(GeneratorRole.sleep)


def columns_of(prompts: RemoteBatch, facts: Facts) -> frozenset[str]:
    """Return the columns of the blocks that engines make for these prompts.

    Args:
        facts: those of any of the blocks.
    """
    turns = TURN_COLUMNS if EPISODE_ROW in facts else frozenset()
    candidates = CANDIDATE_COLUMNS if "candidates" in facts else frozenset()
    experts = {EXPERTS} if "expert_bytes" in facts else set[str]()
    pictures = {RESPONSE_FEATURES} if "picture_bytes" in facts else set[str]()
    return ROLLOUT_COLUMNS | turns | candidates | experts | pictures | (TEACHER_COLUMNS & prompts.columns)


def refuse_differing(reports: Sequence[SyncReport]) -> None:
    """Refuse a sync in which ranks sent or received different weights.

    Raises:
        RunError: the checksums differ.
    """
    checksums = [report.checksum for report in reports]
    differing = [rank for rank, checksum in enumerate(checksums) if checksum != checksums[0]]
    if differing:
        raise RunError(
            f"in the sync to version {reports[0].version} ranks {differing} sent their engines other weights than rank "
            f"0: checksums {checksums[differing[0]]} and {checksums[0]}, expected the same. Replicas diverge if "
            "processors round differently: set fsdp.shard_size=all. If the model is sharded, a gather failed: check "
            "the network. The same command continues from the last checkpoint."
        )
