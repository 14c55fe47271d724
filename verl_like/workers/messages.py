"""What the driver and the workers tell each other besides rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from verl_like.protocol import Array, Ragged


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRewards:
    """What the advantages are computed from, besides token columns; every array is [B].

    Args:
        rewards: float32, what the response earned.
        group_ids: int64.
        baseline_rewards: float32, what the greedy response to the same prompt earned.
        components: float32 each, parts that the reward function reported beside its score.
        mini_batches: the update that a row belongs to, where the policy loss reads ``covariance_rank``.
    """

    rewards: Array
    group_ids: Array
    baseline_rewards: Array | None = None
    components: dict[str, Array] = field(default_factory=dict)
    mini_batches: Array | None = None

    def select(self, rows: Array) -> RowRewards:
        return RowRewards(
            rewards=self.rewards[rows],
            group_ids=self.group_ids[rows],
            baseline_rewards=None if self.baseline_rewards is None else self.baseline_rewards[rows],
            components={name: values[rows] for name, values in self.components.items()},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageReport:
    """``metrics``, and for each row whether any of its advantages is not zero, [B] bool, and their mean, least and
    largest over the tokens that the policy chose, [B] float32; NaN where it chose none.
    """

    metrics: dict[str, float]
    has_advantage: Array
    advantage_mean: Array
    advantage_min: Array
    advantage_max: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateShare:
    """A rank's part of an update of the actor.

    Args:
        mini_batches: for each mini-batch the positions, among the rank's rows, of its share.
        advantages: [n] float32 of the rank's rows, where all tokens of a response have the same; else None.
    """

    mini_batches: Sequence[Array]
    advantages: Array | None = None

    def columns(self, mask: Ragged) -> dict[str, Ragged]:
        """The advantages as a column of tokens, zero where the mask is false; none where the rows have it already."""
        if self.advantages is None:
            return {}
        values = np.repeat(self.advantages, mask.lengths)
        return {"advantages": Ragged(values if mask.values.all() else values * mask.values, mask.offsets)}


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateTerms:
    """What the actor's update reads and does.

    Args:
        columns: token columns the loss reads besides the sequence.
        is_corrected: whether ``algorithm.rollout_correction`` applies in this step.
        mean_weight: the batch's mean importance weight, where weights are divided by it.
    """

    columns: tuple[str, ...]
    is_corrected: bool
    mean_weight: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReport:
    """Weights that went from the actor into engines.

    Args:
        version: that the engines now hold.
        num_bytes: that went into an engine; tied weights count under each of their names.
        seconds: of the slowest rank.
        collectives: gathers that it took; none where ranks have replicas.
        checksum: CRC-32 of all names and weights in their order, where ``rollout.sync_checksum``.
    """

    version: int
    num_bytes: int
    seconds: float
    collectives: int
    checksum: int | None = None

    @property
    def metrics(self) -> dict[str, float]:
        return {
            "sync/bytes": float(self.num_bytes),
            "sync/seconds": self.seconds,
            "sync/gib_per_s": self.num_bytes / 2**30 / self.seconds,
            "sync/collectives": float(self.collectives),
            **({} if self.checksum is None else {"sync/checksum": float(self.checksum)}),
        }
