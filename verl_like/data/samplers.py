"""Which rows make the next batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from verl_like.config.schema import DataConfig

Order = Callable[[int], Sequence[int]]  # epoch -> row indices


class Sampler(Protocol):
    """Batches of row indices without end, which continue exactly from a state."""

    @property
    def batches_per_epoch(self) -> int: ...

    def next_batch(self) -> list[int]: ...

    def state_dict(self) -> dict[str, Any]:
        """What is needed to continue from here; it can be written as JSON."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def sampler(num_rows: int, data: DataConfig, *, seed: int) -> Sampler:
    """The sampler that the configuration asks for.

    Raises:
        ValueError: fewer rows than a batch has.
    """
    if num_rows < data.train_batch_size:
        raise ValueError(
            f"the dataset has {num_rows} rows, but a batch needs data.train_batch_size={data.train_batch_size}. "
            f"Set data.train_batch_size={num_rows} or less, or add rows."
        )
    return EpochSampler(epoch_order(num_rows, data, seed=seed), num_rows=num_rows, batch_size=data.train_batch_size)


def epoch_order(num_rows: int, data: DataConfig, *, seed: int) -> Order:
    """Every row once, in an order that depends on (seed, epoch) alone."""
    return ShuffledOrder(num_rows, seed) if data.shuffle else lambda epoch: range(num_rows)


@dataclass(frozen=True, slots=True)
class ShuffledOrder:
    """Every row once, anew in each epoch."""

    num_rows: int
    seed: int

    def __call__(self, epoch: int) -> list[int]:
        return [int(i) for i in np.random.default_rng([self.seed, epoch]).permutation(self.num_rows)]


class EpochSampler:
    """The batches of one epoch's order after the other's; rows that do not fill a last batch are left to later epochs.

    Its position is the number of batches given since the start: epoch and place in the epoch follow from it.
    """

    def __init__(self, order: Order, *, num_rows: int, batch_size: int) -> None:
        self._order, self._batch_size = order, batch_size
        self.batches_per_epoch = num_rows // batch_size
        self._given = 0
        self._epoch: tuple[int, Sequence[int]] = (-1, ())

    def next_batch(self) -> list[int]:
        epoch, position = divmod(self._given, self.batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._order(epoch))
        start = position * self._batch_size
        self._given += 1
        return list(self._epoch[1][start : start + self._batch_size])

    def state_dict(self) -> dict[str, Any]:
        return {"given": self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._given = state["given"]
