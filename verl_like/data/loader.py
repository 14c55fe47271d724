"""Endless seeded batches of prompts that continue exactly where a checkpoint stopped."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row
from verl_like.data.prompts import Prompt, PromptDataset
from verl_like.data.samplers import sampler


class PromptLoader:
    """Batches of ``data.train_batch_size`` prompts, epoch after epoch.

    Args:
        dataset: at least as many prompts as a batch has.
        data: says which rows make a batch.
    """

    def __init__(self, dataset: PromptDataset, data: DataConfig, *, seed: int) -> None:
        self._dataset, self._data, self._seed = dataset, data, seed
        self._sampler = sampler(dataset, data, seed=seed)
        self._row: dict[str, int] = {}  # of each prompt given, by its uid, where scores are wanted
        self.num_drawn = 0  # prompts, since the start of the run

    @property
    def batches_per_epoch(self) -> int:
        return self._sampler.batches_per_epoch

    def __iter__(self) -> Iterator[list[Prompt]]:
        while True:
            yield self.next_batch()

    def next_batch(self) -> list[Prompt]:
        """The next prompts."""
        rows = self._sampler.next_batch()
        prompts = _with_distinct_uids([self._dataset[row] for row in rows])
        if self._sampler.learns:
            self._row.update(zip((prompt.uid for prompt in prompts), rows, strict=True))
        self.num_drawn += len(prompts)
        return prompts

    def feedback(self, uids: Iterable[str], scores: Iterable[float]) -> None:
        """Tell the sampler how responses were scored.

        Args:
            uids: of each response's prompt, which was given since this loader was made.
            scores: of each response; those without one (NaN) say nothing.
        """
        if not self._sampler.learns:
            return
        found: dict[int, list[float]] = {}
        for uid, score in zip(uids, scores, strict=True):
            if not math.isnan(score):
                found.setdefault(self._row[uid], []).append(float(score))
        self._sampler.feedback({row: math.fsum(each) / len(each) for row, each in found.items()})

    def metrics(self) -> dict[str, float]:
        """What the sampler says of the rows."""
        return self._sampler.metrics()

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return {"sampler": self._sampler.state_dict(), "num_drawn": self.num_drawn, "dataset": self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``.

        Raises:
            ValueError: when the dataset or what chooses from it differs, because the position would mean other rows.
        """
        refuse_other_rows(self._identity(), checkpoint=state["dataset"])
        self.num_drawn = state["num_drawn"]
        self._sampler.load_state_dict(state["sampler"])

    def _identity(self) -> dict[str, Any]:
        return {
            **epoch_identity(self._data, num_rows=len(self._dataset), digest=self._dataset.digest, seed=self._seed),
            "sampler": self._data.sampler.rpartition("/")[2],
            "sampler_kwargs": self._data.sampler_kwargs,
            "curriculum": asdict(self._data.curriculum),
        }


def epoch_identity(data: DataConfig, *, num_rows: int, digest: str, seed: int) -> dict[str, Any]:
    """What a position in epochs is a position in.

    Args:
        digest: names the rows and their order.
    """
    return {
        "num_rows": num_rows,
        "rows": digest,
        "batch_size": data.train_batch_size,
        "shuffle": data.shuffle,
        "weights": data.train_weights,
        "seed": seed,
    }


def sft_identity(rows: Sequence[Row], data: DataConfig, *, num_kept: int, seed: int) -> dict[str, Any]:
    """What a position of supervised training is a position in.

    Args:
        rows: as they were read.
        num_kept: of these that are trained on.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr((row.uid, row.values[data.prompt_key], row.values[data.answer_key])).encode())
    return epoch_identity(data, num_rows=num_kept, digest=digest.hexdigest()[:16], seed=seed)


def refuse_other_rows(now: dict[str, Any], *, checkpoint: dict[str, Any]) -> None:
    """Return if a position in what the checkpoint names means the same rows now.

    Raises:
        ValueError: names what differs.
    """
    found, expected = _as_read_back(now), _as_read_back(checkpoint)
    changed = {key: (expected[key], found[key]) for key in expected if expected[key] != found[key]}
    if changed:
        raise ValueError(
            f"the data loader's checkpoint does not fit this run: (checkpoint, now) is {changed}. "
            f"Restore these settings, or start anew with trainer.resume=never and another trainer.experiment_name."
        )


def _as_read_back(identity: dict[str, Any]) -> dict[str, Any]:
    """The identity as a checkpoint has it: keys are text there. NaN is text too, so that it equals itself."""
    read: dict[str, Any] = json.loads(json.dumps(identity), parse_constant=str)
    return read


def rehearse(dataset: PromptDataset, data: DataConfig, *, seed: int) -> None:
    """Draw, score and continue once, with loaders that nobody else has, where the sampler is not one of ours.

    Raises:
        ValueError: what would have ended the run later, or had it continue with other prompts.
    """
    if not data.sampler:
        return
    first, resumed = (PromptLoader(dataset, data, seed=seed) for _ in range(2))
    uids = [prompt.uid for prompt in first.next_batch()]
    first.feedback(uids, [0.5] * len(uids))
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    expected, found = ([prompt.uid for prompt in loader.next_batch()] for loader in (first, resumed))
    if found != expected:
        place = next(i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        raise ValueError(
            f"data.sampler={data.sampler} does not continue where it stopped: with its state another one gives "
            f"{found[place]} at place {place} of the next batch; expected {expected[place]}. Draw at random from the "
            f"seed that it is given, and put all that changes into its state."
        )


def _with_distinct_uids(prompts: list[Prompt]) -> list[Prompt]:
    """The prompts, of which one that comes again has another uid: sampling is seeded by it, so responses differ."""
    times: Counter[str] = Counter()
    distinct = []
    for prompt in prompts:
        times[prompt.uid] += 1
        count = times[prompt.uid]
        distinct.append(prompt if count == 1 else replace(prompt, uid=f"{prompt.uid}#{count}"))
    return distinct
