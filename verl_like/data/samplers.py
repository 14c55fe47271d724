"""Samplers, which select the rows of the next batch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from verl_like.config.schema import CURRICULUM, DataConfig
from verl_like.data.curriculum import Curriculum
from verl_like.data.custom_sampler import CustomSampler, custom_order, user_sampler
from verl_like.data.orders import Order, Rows, epoch_order
from verl_like.data.prompts import PromptDataset


class Sampler(Protocol):
    """Endless batches of row indices, which continue exactly from a state."""

    @property
    def batches_per_epoch(self) -> int: ...

    @property
    def learns(self) -> bool:
        """Whether scores change the selection; only then does the sampler get them."""

    def next_batch(self) -> list[int]: ...

    def feedback(self, scores: Mapping[int, float]) -> None:
        """Record the mean score of the responses to each of these rows."""

    def metrics(self) -> dict[str, float]: ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which to continue, in a form that JSON can store."""

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def sampler(prompts: PromptDataset, data: DataConfig, *, seed: int) -> Sampler:
    """Return the sampler that the configuration specifies.

    Raises:
        ValueError: as :func:`epoch_sampler`, or for a user's sampler that cannot be used.
    """
    if not data.sampler:
        return epoch_sampler(prompts.file_numbers, data, seed=seed)
    _check_size(len(prompts), data)
    if data.sampler == CURRICULUM:
        return Curriculum(len(prompts), batch_size=data.train_batch_size, config=data.curriculum, seed=seed)
    found = user_sampler(data)
    if inspect.isclass(found):
        return CustomSampler(found, prompts, data, seed=seed)
    order = custom_order(found, prompts, data, seed=seed)
    return EpochSampler(order, num_rows=len(prompts), batch_size=data.train_batch_size)


def epoch_sampler(file_numbers: Sequence[int] | Rows, data: DataConfig, *, seed: int) -> EpochSampler:
    """Return epochs of every row, or of the files' shares.

    Args:
        file_numbers: for each row, the position of its file in ``data.train_files``.

    Raises:
        ValueError: for fewer rows than a batch has, or shares of files that cannot be drawn.
    """
    _check_size(len(file_numbers), data)
    order = epoch_order(file_numbers, data, seed=seed)
    return EpochSampler(order, num_rows=len(file_numbers), batch_size=data.train_batch_size)


def _check_size(num_rows: int, data: DataConfig) -> None:
    if num_rows < data.train_batch_size:
        raise ValueError(
            f"the dataset has {num_rows} rows, but a batch needs data.train_batch_size={data.train_batch_size}. "
            f"Set data.train_batch_size={num_rows} or less, or add rows."
        )


class EpochSampler:
    """The batches of successive epochs; rows that do not fill a last batch are left to later epochs.

    Its position is the number of batches given since the start, from which epoch and position in the epoch follow.
    """

    learns = False

    def __init__(self, order: Order, *, num_rows: int, batch_size: int) -> None:
        self._order, self._batch_size = order, batch_size
        self.batches_per_epoch = num_rows // batch_size
        self._given = 0
        self._epoch: tuple[int, Sequence[int] | Rows] = (-1, ())

    def next_batch(self) -> list[int]:
        epoch, position = divmod(self._given, self.batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._order(epoch))
        start = position * self._batch_size
        self._given += 1
        return [int(row) for row in self._epoch[1][start : start + self._batch_size]]

    def feedback(self, scores: Mapping[int, float]) -> None:
        """Do nothing: the order of rows does not depend on scores."""

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"given": self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._given = state["given"]
