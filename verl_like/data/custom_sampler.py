"""Samplers from a user's file: a function that orders epochs, or a class that selects batch by batch."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from verl_like.config.schema import DataConfig
from verl_like.config.user_code import error_text, from_file
from verl_like.data.orders import Order
from verl_like.data.prompts import PromptDataset


class SamplerError(ValueError):
    """Raised if the user's sampler fails or returns an invalid result; the policy after the last step can still be
    saved.
    """


@runtime_checkable
class UserSampler(Protocol):
    """Methods of a user's class, which is built as ``name(prompts, batch_size=, seed=, **data.sampler_kwargs)``."""

    def next_batch(self) -> Iterable[int]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class TakesFeedback(Protocol):
    """Optional method of a user's class."""

    def feedback(self, scores: dict[int, float]) -> None: ...


def user_sampler(data: DataConfig) -> Any:
    """Return the function or class that ``data.sampler`` names.

    Raises:
        ValueError: if there is none.
    """
    path, _, name = data.sampler.rpartition(":")
    return from_file(Path(path).expanduser(), name, option="data.sampler")


def custom_order(function: Callable[..., Any], prompts: PromptDataset, data: DataConfig, *, seed: int) -> Order:
    """Return the order of epochs by ``function(prompts, seed=, epoch=, **data.sampler_kwargs)``.

    For each epoch, the first rows of its result are used, as many as the dataset has in whole batches.
    """
    calls = _Calls(f"data.sampler={data.sampler}")
    count = len(prompts) // data.train_batch_size * data.train_batch_size

    def order(epoch: int) -> list[int]:
        found = calls(function, prompts, seed=seed, epoch=epoch, **data.sampler_kwargs)
        rows = calls.rows(found, count, num_rows=len(prompts), of=f"epoch {epoch}")
        if len(rows) < count:
            raise SamplerError(
                f"{calls.spec} returned {len(rows)} rows for epoch {epoch}; expected at least {count}, which are "
                f"{count // data.train_batch_size} batches of data.train_batch_size={data.train_batch_size}. Repeat "
                "rows, or drop some from the data (data.custom_dataset)."
            )
        return rows

    return order


class CustomSampler:
    """Wraps a user's sampler and validates what it returns."""

    def __init__(self, kind: type, prompts: PromptDataset, data: DataConfig, *, seed: int) -> None:
        self._calls = _Calls(f"data.sampler={data.sampler}")
        self._num_rows, self._batch_size = len(prompts), data.train_batch_size
        self.batches_per_epoch = self._num_rows // self._batch_size
        sampler = self._calls(kind, prompts, batch_size=self._batch_size, seed=seed, **data.sampler_kwargs)
        if not isinstance(sampler, UserSampler):
            missing = [name for name in ("next_batch", "state_dict", "load_state_dict") if name not in dir(sampler)]
            raise SamplerError(
                f"{self._calls.spec} lacks {', '.join(missing)}; expected a class with next_batch(), state_dict() and "
                f"load_state_dict(state), so that a run can continue. Add these methods, or write a function "
                f"order(prompts, seed, epoch)."
            )
        self._sampler: UserSampler = sampler

    @property
    def learns(self) -> bool:
        return isinstance(self._sampler, TakesFeedback)

    def next_batch(self) -> list[int]:
        found = self._calls(self._sampler.next_batch)
        rows = self._calls.rows(found, self._batch_size + 1, num_rows=self._num_rows, of="a batch")
        if len(rows) != self._batch_size:
            found = f"{len(rows)}" if len(rows) < self._batch_size else f"more than {self._batch_size}"
            raise SamplerError(
                f"{self._calls.spec} returned {found} rows for a batch; expected "
                f"data.train_batch_size={self._batch_size}. Return as many rows as the batch_size that is passed to "
                "the class; rows may be repeated."
            )
        return rows

    def feedback(self, scores: Mapping[int, float]) -> None:
        if isinstance(self._sampler, TakesFeedback):
            self._calls(self._sampler.feedback, dict(scores))

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        state = self._calls(self._sampler.state_dict)
        if not isinstance(state, dict) or (odd := _not_json(state, "")):
            found = odd if isinstance(state, dict) else f"a {type(state).__name__}"
            raise SamplerError(
                f"{self._calls.spec} returned {found} as its state; expected a dict with text for keys that holds "
                "dicts, lists, numbers, text and None, as JSON does. Turn arrays and tuples into lists."
            )
        as_written: dict[str, Any] = json.loads(json.dumps(state))
        return as_written

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # A copy: a class may keep changing the state that it was given, and the caller saves it once more.
        self._calls(self._sampler.load_state_dict, deepcopy(state))


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls into the user's file; errors name the option and show the file's own lines."""

    spec: str

    def __call__(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except (Exception, SystemExit) as error:  # a user's code may raise anything
            raise SamplerError(
                f"{self.spec} failed:\n{error_text(error)}\nCorrect the file, or data.sampler_kwargs."
            ) from error

    def rows(self, found: object, most: int, *, num_rows: int, of: str) -> list[int]:
        """Return up to ``most`` row indices from the result of a call."""
        if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, Iterable):
            raise SamplerError(
                f"{self.spec} returned a {type(found).__name__} for {of}; expected row numbers: a list, an array or a "
                f"generator of integers from 0 to {num_rows - 1}."
            )
        rows = []
        for position, value in enumerate(self(list, islice(found, most))):
            row = None if isinstance(value, bool) else _integer(value)
            if row is None or not 0 <= row < num_rows:
                raise SamplerError(
                    f"{self.spec} returned {value!r} at position {position} of {of}; expected row numbers, integers "
                    f"from 0 to {num_rows - 1}: there are {num_rows} prompts, without those that are too long."
                )
            rows.append(row)
        return rows


def _integer(value: Any) -> int | None:
    try:
        return operator.index(value)
    except TypeError:
        return None


def _not_json(value: object, position: str) -> str:
    """Describe a part that JSON cannot restore unchanged, and its position; empty if there is none."""
    if isinstance(value, dict):
        odd = next((f"the key {key!r}{position}" for key in value if not isinstance(key, str)), "")
        return odd or next((odd for key, part in value.items() if (odd := _not_json(part, f" in {key!r}"))), "")
    if isinstance(value, list):
        return next((odd for part in value if (odd := _not_json(part, position))), "")
    return "" if value is None or isinstance(value, (str, int, float)) else f"a {type(value).__name__}{position}"
