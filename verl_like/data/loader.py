"""Endless seeded batches of prompts that continue exactly from a checkpoint."""

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
    """Batches of ``data.train_batch_size`` of its ``prompts``, epoch after epoch.

    Args:
        dataset: at least as many prompts as a batch has.
        data: configures which rows make a batch.
    """

    def __init__(self, dataset: PromptDataset, data: DataConfig, *, seed: int) -> None:
        self.prompts, self._data, self._seed = dataset, data, seed
        self._sampler = sampler(dataset, data, seed=seed)
        self._row: dict[str, int] = {}  # uid -> row of each prompt given, if the sampler uses scores
        self.num_drawn = 0  # prompts, since the start of the run

    @property
    def batches_per_epoch(self) -> int:
        return self._sampler.batches_per_epoch

    def __iter__(self) -> Iterator[list[Prompt]]:
        while True:
            yield self.next_batch()

    def next_batch(self) -> list[Prompt]:
        """Return the next batch of prompts."""
        rows = self._sampler.next_batch()
        prompts = _with_distinct_uids(self.prompts.at(rows))
        if self._sampler.learns:
            self._row.update(zip((prompt.uid for prompt in prompts), rows, strict=True))
        self.num_drawn += len(prompts)
        return prompts

    def feedback(self, uids: Iterable[str], scores: Iterable[float]) -> None:
        """Pass the scores of responses to the sampler.

        Args:
            uids: uid of each response's prompt, which this loader has given.
            scores: score of each response; NaN for none, which is ignored.
        """
        if not self._sampler.learns:
            return
        found: dict[int, list[float]] = {}
        for uid, score in zip(uids, scores, strict=True):
            if not math.isnan(score):
                found.setdefault(self._row[uid], []).append(float(score))
        self._sampler.feedback({row: math.fsum(each) / len(each) for row, each in found.items()})

    def metrics(self) -> dict[str, float]:
        """Return the sampler's metrics."""
        return self._sampler.metrics()

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and the identity of the data to which it refers."""
        return {"sampler": self._sampler.state_dict(), "num_drawn": self.num_drawn, "dataset": self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``.

        Raises:
            ValueError: if the dataset or the sampler differs, because the position would then mean other rows.
        """
        refuse_other_rows(self._identity(), checkpoint=state["dataset"])
        self.num_drawn = state["num_drawn"]
        self._sampler.load_state_dict(state["sampler"])

    def _identity(self) -> dict[str, Any]:
        return {
            **epoch_identity(self._data, num_rows=len(self.prompts), digest=self.prompts.digest, seed=self._seed),
            "sampler": self._data.sampler.rpartition("/")[2],
            "sampler_kwargs": self._data.sampler_kwargs,
            "curriculum": asdict(self._data.curriculum),
        }


def epoch_identity(data: DataConfig, *, num_rows: int, digest: str, seed: int) -> dict[str, Any]:
    """Return the identity of the epochs to which a position refers.

    Args:
        digest: identifies the rows and their order.
    """
    return {
        "num_rows": num_rows,
        "rows": digest,
        "batch_size": data.train_batch_size,
        "shuffle": data.shuffle,
        "weights": data.train_weights,
        "seed": seed,
    }


def rows_identity(
    rows: Sequence[Row], data: DataConfig, *, columns: Sequence[str], num_kept: int, seed: int
) -> dict[str, Any]:
    """Return the identity of the data to which a position of training on given rows refers.

    Args:
        rows: as they were read.
        columns: columns that distinguish them; a row may lack some.
        num_kept: number of these that are trained on.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr((row.uid, *(row.values[name] for name in columns if name in row.values))).encode())
    return epoch_identity(data, num_rows=num_kept, digest=digest.hexdigest()[:16], seed=seed)


def refuse_other_rows(now: dict[str, Any], *, checkpoint: dict[str, Any]) -> None:
    """Check that a position in the checkpoint's data means the same rows now.

    Raises:
        ValueError: names the differences.
    """
    found, expected = _as_read_back(now), _as_read_back(checkpoint)
    changed = {key: (expected[key], found[key]) for key in expected if expected[key] != found[key]}
    if changed:
        raise ValueError(
            f"the data loader's checkpoint does not fit this run: (checkpoint, now) is {changed}. "
            f"Restore these settings, or start a new run with trainer.resume=never and another trainer.experiment_name."
        )


def _as_read_back(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the identity as read from a checkpoint: keys are text, and NaN is text too, so that it equals itself."""
    read: dict[str, Any] = json.loads(json.dumps(identity), parse_constant=str)
    return read


def rehearse(dataset: PromptDataset, data: DataConfig, *, seed: int) -> None:
    """Draw, score and continue once with separate loaders, if the sampler is not built in.

    Raises:
        ValueError: for errors that would otherwise end the run later, or make it continue with other prompts.
    """
    if not data.sampler:
        return
    first, resumed = (PromptLoader(dataset, data, seed=seed) for _ in range(2))
    uids = [prompt.uid for prompt in first.next_batch()]
    first.feedback(uids, [0.5] * len(uids))
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    expected, found = ([prompt.uid for prompt in loader.next_batch()] for loader in (first, resumed))
    if found != expected:
        position = next(i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        raise ValueError(
            f"data.sampler={data.sampler} does not continue from its state: a second sampler with that state returns "
            f"{found[position]} at position {position} of the next batch; expected {expected[position]}. Draw at "
            "random only from the given seed, and include everything that changes in the state."
        )


def _with_distinct_uids(prompts: list[Prompt]) -> list[Prompt]:
    """Return the prompts with a new uid for each repetition: sampling is seeded by the uid, so that responses
    differ.
    """
    times: Counter[str] = Counter()
    distinct = []
    for prompt in prompts:
        times[prompt.uid] += 1
        count = times[prompt.uid]
        distinct.append(prompt if count == 1 else replace(prompt, uid=f"{prompt.uid}#{count}"))
    return distinct
