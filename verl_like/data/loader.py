"""Endless seeded batches of prompts that continue exactly where a checkpoint stopped."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from verl_like.data.prompts import Prompt, PromptDataset


class _EpochBatches:
    """Row indices of one batch after the other, without end. The order of an epoch depends on (seed, epoch) alone."""

    def __init__(self, *, num_rows: int, batch_size: int, shuffle: bool, seed: int) -> None:
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed

    @property
    def batches_per_epoch(self) -> int:
        return self.num_rows // self.batch_size

    def order(self, epoch: int) -> list[int]:
        if not self.shuffle:
            return list(range(self.num_rows))
        return [int(i) for i in np.random.default_rng([self.seed, epoch]).permutation(self.num_rows)]

    def __iter__(self) -> _EpochBatchesIterator:
        return _EpochBatchesIterator(self)


class _EpochBatchesIterator:
    """Its position is the number of batches given since the start: epoch and place in the epoch follow from it."""

    def __init__(self, batches: _EpochBatches) -> None:
        self._batches = batches
        self._given = 0
        self._order: tuple[int, list[int]] = (0, batches.order(0))

    def __iter__(self) -> _EpochBatchesIterator:
        return self

    def __next__(self) -> list[int]:
        epoch, position = divmod(self._given, self._batches.batches_per_epoch)
        if self._order[0] != epoch:
            self._order = (epoch, self._batches.order(epoch))
        start = position * self._batches.batch_size
        self._given += 1
        return self._order[1][start : start + self._batches.batch_size]

    def state_dict(self) -> dict[str, Any]:
        return {"given": self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._given = state["given"]


class PromptLoader:
    """Batches of prompts, epoch after epoch; rows that do not fill a last batch wait for the next epoch's order.

    Args:
        dataset: at least ``batch_size`` prompts.
        batch_size: prompts per batch.
        shuffle: a new order each epoch, from (``seed``, epoch); false keeps the order of the files.
    """

    def __init__(self, dataset: PromptDataset, *, batch_size: int, shuffle: bool, seed: int) -> None:
        if len(dataset) < batch_size:
            raise ValueError(
                f"the dataset has {len(dataset)} rows, but a batch needs data.train_batch_size={batch_size}. "
                f"Set data.train_batch_size={len(dataset)} or less, or add rows."
            )
        self._batches = _EpochBatches(num_rows=len(dataset), batch_size=batch_size, shuffle=shuffle, seed=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata 0.11 still calls it
            # Without a generator of its own, the loader would draw from, and so move, torch's global random state.
            self._loader: StatefulDataLoader[Any] = StatefulDataLoader(
                dataset, batch_sampler=self._batches, collate_fn=list, num_workers=0, generator=torch.Generator()
            )
        self._iterator: Iterator[list[Prompt]] | None = None
        self.num_drawn = 0  # prompts, since the start of the run

    @property
    def batches_per_epoch(self) -> int:
        return self._batches.batches_per_epoch

    def __iter__(self) -> Iterator[list[Prompt]]:
        while True:
            yield self.next_batch()

    def next_batch(self) -> list[Prompt]:
        """The next ``batch_size`` prompts."""
        if self._iterator is None:
            self._iterator = iter(self._loader)
        prompts = next(self._iterator)
        self.num_drawn += len(prompts)
        return prompts

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return {"loader": self._loader.state_dict(), "num_drawn": self.num_drawn, "dataset": self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``.

        Raises:
            ValueError: when the dataset, batch size, shuffling or seed differ, because the position would mean other
                rows.
        """
        found, expected = self._identity(), state["dataset"]
        if found != expected:
            changed = {key: (expected[key], found[key]) for key in expected if expected[key] != found[key]}
            raise ValueError(
                f"the data loader's checkpoint does not fit this run: (checkpoint, now) is {changed}. "
                f"Restore these settings, or start anew with trainer.resume=never and another trainer.experiment_name."
            )
        self.num_drawn = state["num_drawn"]
        self._loader.load_state_dict(state["loader"])
        self._iterator = iter(self._loader)

    def _identity(self) -> dict[str, Any]:
        batches = self._batches
        return {
            "num_rows": batches.num_rows,
            "batch_size": batches.batch_size,
            "shuffle": batches.shuffle,
            "seed": batches.seed,
        }
