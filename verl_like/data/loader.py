"""Endless seeded batches of prompts that continue exactly where a checkpoint stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from verl_like.config.schema import DataConfig
from verl_like.data.prompts import Prompt, PromptDataset
from verl_like.data.samplers import Sampler, epoch_sampler


class PromptLoader:
    """Batches of ``data.train_batch_size`` prompts, epoch after epoch.

    Args:
        dataset: at least as many prompts as a batch has.
        data: says which rows make a batch.
    """

    def __init__(self, dataset: PromptDataset, data: DataConfig, *, seed: int) -> None:
        self._dataset, self._data, self._seed = dataset, data, seed
        self._sampler: Sampler = epoch_sampler(dataset.file_numbers, data, seed=seed)
        self.num_drawn = 0  # prompts, since the start of the run

    @property
    def batches_per_epoch(self) -> int:
        return self._sampler.batches_per_epoch

    def __iter__(self) -> Iterator[list[Prompt]]:
        while True:
            yield self.next_batch()

    def next_batch(self) -> list[Prompt]:
        """The next prompts."""
        prompts = _told_apart([self._dataset[row] for row in self._sampler.next_batch()])
        self.num_drawn += len(prompts)
        return prompts

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return {"sampler": self._sampler.state_dict(), "num_drawn": self.num_drawn, "dataset": self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``.

        Raises:
            ValueError: when the dataset or what chooses from it differs, because the position would mean other rows.
        """
        found, expected = self._identity(), state["dataset"]
        if found != expected:
            changed = {key: (expected[key], found[key]) for key in expected if expected[key] != found[key]}
            raise ValueError(
                f"the data loader's checkpoint does not fit this run: (checkpoint, now) is {changed}. "
                f"Restore these settings, or start anew with trainer.resume=never and another trainer.experiment_name."
            )
        self.num_drawn = state["num_drawn"]
        self._sampler.load_state_dict(state["sampler"])

    def _identity(self) -> dict[str, Any]:
        return {
            "num_rows": len(self._dataset),
            "rows": self._dataset.digest,
            "batch_size": self._data.train_batch_size,
            "shuffle": self._data.shuffle,
            "weights": self._data.train_weights,
            "seed": self._seed,
        }


def _told_apart(prompts: list[Prompt]) -> list[Prompt]:
    """The prompts, of which one that comes again has another uid: sampling is seeded by it, so responses differ."""
    times: Counter[str] = Counter()
    told = []
    for prompt in prompts:
        times[prompt.uid] += 1
        count = times[prompt.uid]
        told.append(prompt if count == 1 else replace(prompt, uid=f"{prompt.uid}#{count}"))
    return told
