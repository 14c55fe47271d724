"""Messages between the driver and the workers, other than rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from verl_like.protocol import Array, Column, Ragged


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRewards:
    """Inputs of the advantages other than token columns; every array is [B].

    Args:
        rewards: float32, the reward of each response.
        group_ids: int64.
        baseline_rewards: float32, the reward of the greedy response to the same prompt.
        role_baselines: float64, the baseline of the row's role.
        components: float32 each, parts that the reward function returned in addition to its score.
        mini_batches: the update that each row belongs to, if the tokens of a mini-batch are compared.
        ranks_covariance: whether the policy loss reads ``covariance_rank``.
        episodes: int64, number of each row's episode, ascending; None if every row is one sample.
    """

    rewards: Array
    group_ids: Array
    baseline_rewards: Array | None = None
    role_baselines: Array | None = None
    components: dict[str, Array] = field(default_factory=dict)
    mini_batches: Array | None = None
    ranks_covariance: bool = False
    episodes: Array | None = None

    def select(self, rows: Array) -> RowRewards:
        return RowRewards(
            rewards=self.rewards[rows],
            group_ids=self.group_ids[rows],
            baseline_rewards=None if self.baseline_rewards is None else self.baseline_rewards[rows],
            role_baselines=None if self.role_baselines is None else self.role_baselines[rows],
            components={name: values[rows] for name, values in self.components.items()},
            episodes=None if self.episodes is None else self.episodes[rows],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageReport:
    """``metrics``, and statistics of each row's advantages.

    ``has_advantage`` [B] bool is true if any advantage of a row is not zero. ``advantage_mean``, ``advantage_min`` and
    ``advantage_max`` [B] float32 are taken over the tokens that the policy sampled; NaN for a row without any.
    """

    metrics: dict[str, float]
    has_advantage: Array
    advantage_mean: Array
    advantage_min: Array
    advantage_max: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateShare:
    """A rank's share of an update of the actor.

    Args:
        mini_batches: for each mini-batch, the positions of its rows among the rank's rows.
        advantages: [n] float32 of the rank's rows if all tokens of a response have the same advantage; otherwise None.
        counts: columns of the rank's rows by which a loss counts groups and episodes, and that name their teacher.
    """

    mini_batches: Sequence[Array]
    advantages: Array | None = None
    counts: Mapping[str, Array] = field(default_factory=dict)

    def columns(self, mask: Ragged) -> dict[str, Column]:
        """Return the columns of ``counts``, and the advantages as a token column if the rows lack it; zero where the
        mask is false.
        """
        if self.advantages is None:
            return dict(self.counts)
        values = np.repeat(self.advantages, mask.lengths)
        tokens = Ragged(values if mask.values.all() else values * mask.values, mask.offsets)
        return {"advantages": tokens, **self.counts}


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateTerms:
    """Inputs and settings of the actor's update.

    Args:
        columns: token columns that the loss reads in addition to the sequence.
        is_corrected: whether ``algorithm.rollout_correction`` applies in this step.
        mean_weight: the batch's mean importance weight, if weights are divided by it.
    """

    columns: tuple[str, ...]
    is_corrected: bool
    mean_weight: float | None = None


class Event(NamedTuple):
    """A message to a separate engine that changed what it computes, and the engine step before which it was taken.

    Args:
        step: engine steps before it.
        kind: "admit" or "sync".
        number: of the admission, or 0.
        rows: of the admission's prompts.
    """

    step: int
    kind: str
    number: int
    rows: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The event in messages."""
        return f"{self.kind} {self.number}" + (f" of {len(self.rows)} prompts" if self.rows else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReport:
    """Report on a transfer of weights from the actor into engines.

    Args:
        version: weight version that the engines now hold.
        num_bytes: bytes loaded by an engine; tied weights count under each of their names.
        seconds: time of the slowest rank.
        pause_s: longest time for which an engine did not step.
        collectives: number of gathers; 0 if ranks have replicas.
        checksum: CRC-32 of all names and weights in sequence, if ``rollout.sync_checksum`` is set.
        admission_limit: samples that an engine is given at once, the lowest of all engines, if it varies.
        events: what a separate engine has taken since the last sync, and before which of its steps.
    """

    version: int
    num_bytes: int
    seconds: float
    pause_s: float
    collectives: int = 0
    checksum: int | None = None
    admission_limit: int | None = None
    events: Sequence[Event] = ()

    @property
    def metrics(self) -> dict[str, float]:
        return {
            "sync/bytes": float(self.num_bytes),
            "sync/seconds": self.seconds,
            "sync/pause_s": self.pause_s,
            "sync/gib_per_s": self.num_bytes / 2**30 / self.seconds,
            "sync/collectives": float(self.collectives),
            **({} if self.checksum is None else {"sync/checksum": float(self.checksum)}),
            **({} if self.admission_limit is None else {"rollout/admission_limit": float(self.admission_limit)}),
        }
