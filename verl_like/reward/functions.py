"""Load a run's reward functions and apply them to samples and ground truths, in a scorer process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from verl_like.reward.ground_truth import GroundTruthReader, ground_truth_reader, ground_truth_reading
from verl_like.reward.resolve import resolve
from verl_like.reward.results import MAX_SCORE, Details, check_result, check_size, failed, split_results
from verl_like.reward.scorer_messages import GroundTruthReading, Outcome, RowGroundTruth, Sample
from verl_like.reward.signatures import BoundFunction, bind
from verl_like.reward.specs import FunctionSpec
from verl_like_graders import prepare

if TYPE_CHECKING:
    from verl_like.reward.event_loop import EventLoop

_FROM_FIRST = ("acc", "pred")  # read by validation; the first function that reports one sets it
READINGS_EVERY_S = 0.1
Numbered = tuple[int, Outcome]


class BatchFailed(Exception):
    """A call for many samples failed, so that the sample at fault is unknown."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class _Function:
    """One function of the run; with an empty name, one function per data source, resolved at its first sample."""

    def __init__(self, spec: FunctionSpec) -> None:
        self.spec = spec
        self._by_source: dict[str, BoundFunction] = {}
        self._readers: dict[str, GroundTruthReader | None] = {}
        self.is_batch = self.is_async = False
        if spec.function:
            bound = self.of("")
            self.is_batch, self.is_async = bound.form.is_batch, bound.is_async

    def of(self, data_source: str) -> BoundFunction:
        key = "" if self.spec.function else data_source
        if key not in self._by_source:
            function = resolve(self.spec.function, key, option=self.spec.option)
            bound = bind(function, self.spec.kwargs, name=self.spec.function or f"of data_source {key!r}")
            if not self.spec.function and bound.form.is_batch:
                raise ValueError(
                    f"the reward function of data_source {key!r} takes batches. Name it in {self.spec.option}."
                )
            if ":" not in self.spec.function:
                prepare(function)
            self._by_source[key] = bound
        return self._by_source[key]

    def reader(self, data_source: str) -> GroundTruthReader | None:
        """Return the reader of a data source's ground truths; None if its function has no reader."""
        if data_source not in self._readers:
            try:
                self._readers[data_source] = ground_truth_reader(self.of(data_source))
            except ValueError:  # no function is known for the source: scoring a sample of it reports that
                self._readers[data_source] = None
        return self._readers[data_source]


class Scoring:
    """Applies all functions of a run to samples; an error with a sample becomes its outcome.

    Args:
        max_concurrency: concurrent calls of an async function.
        timeout_s: deadline of an async call, which is then cancelled. Everything else is killed from outside.

    Raises:
        ValueError: a function cannot be loaded or called.
    """

    def __init__(self, specs: Sequence[FunctionSpec], *, max_concurrency: int, timeout_s: float) -> None:
        self._functions = [_Function(spec) for spec in specs]
        self._max_concurrency, self._timeout_s = max_concurrency, timeout_s
        self._event_loop: EventLoop | None = None
        if any(function.is_batch for function in self._functions):
            self.mode = "batch"  # one call for all samples
        elif any(function.is_async for function in self._functions):
            self.mode = "concurrent"  # many samples at once
        else:
            self.mode = "each"  # one sample after the other

    def outcomes(self, samples: Sequence[Sample]) -> Iterator[Numbered]:
        """Yield (position, outcome) pairs as they become ready, one for each sample.

        Raises:
            BatchFailed: in mode ``batch``, with more than one sample.
        """
        if self.mode == "batch":
            yield from self._of_batch(samples)
        elif self.mode == "concurrent":
            yield from self._loop().outcomes(
                samples, self._awaited, max_concurrency=self._max_concurrency, timeout_s=self._timeout_s
            )
        else:
            for i, sample in enumerate(samples):
                yield i, self._one(sample)

    def ground_truth_readings(self, ground_truths: Iterable[RowGroundTruth]) -> Iterator[list[GroundTruthReading]]:
        """Yield lists of readings, in the sequence of ``ground_truths``, about every ``READINGS_EVERY_S``."""
        readings: list[GroundTruthReading] = []
        since = time.perf_counter()
        for row in ground_truths:
            readers = [(each.spec.name, reader) for each in self._functions if (reader := each.reader(row.data_source))]
            readings.append(ground_truth_reading(readers, row.ground_truth))
            if time.perf_counter() - since >= READINGS_EVERY_S:
                yield readings
                readings, since = [], time.perf_counter()
        if readings:
            yield readings

    def _one(self, sample: Sample) -> Outcome:
        started = time.perf_counter()
        try:
            values = [self._value(function, sample) for function in self._functions]
        except BaseException as error:  # noqa: BLE001 (user code may raise anything)
            return failed(error, started)
        return self._outcome(values, started)

    def _outcome(self, values: Sequence[Any], started: float) -> Outcome:
        """Return the outcome of a sample for which the functions returned these values."""
        try:
            score, details = self._summed(values)
        except BaseException as error:  # noqa: BLE001 (a returned value may be of a user's class, whose methods raise)
            return failed(error, started)
        return Outcome("ok", score, details, "", time.perf_counter() - started)

    def _value(self, function: _Function, sample: Sample) -> Any:
        value = function.of(sample.data_source)([sample])
        return self._loop().run(value) if isawaitable(value) else value

    def _of_batch(self, samples: Sequence[Sample]) -> Iterator[Numbered]:
        started = time.perf_counter()
        try:
            columns = [self._column(function, samples) for function in self._functions]
        except BaseException as error:
            outcome = failed(error, started)
            if len(samples) > 1:
                raise BatchFailed(outcome) from error
            yield 0, outcome
            return
        seconds = (time.perf_counter() - started) / len(samples)
        for i, values in enumerate(zip(*columns, strict=True)):
            yield i, replace(self._outcome(values, started), seconds=seconds)

    def _column(self, function: _Function, samples: Sequence[Sample]) -> list[Any]:
        if not function.is_batch:
            return [self._value(function, sample) for sample in samples]
        value = function.of("")(samples)
        return split_results(self._loop().run(value) if isawaitable(value) else value, len(samples))

    async def _awaited(self, sample: Sample) -> tuple[float, Details]:
        values = []
        for function in self._functions:
            value = function.of(sample.data_source)([sample])
            values.append(await value if isawaitable(value) else value)
        return self._summed(values)

    def _summed(self, values: Sequence[Any]) -> tuple[float, Details]:
        """Return the weighted sum of the functions' scores for one sample, and each score by its function's name.

        One of several functions may return None if it does not apply (as TRL's do).
        """
        if len(self._functions) == 1 and not self._functions[0].spec.name:
            return check_result(values[0])
        total, details, applied = 0.0, Details(), 0
        for function, value in zip(self._functions, values, strict=True):
            if value is None:
                continue
            name = function.spec.name
            try:
                score, more = check_result(value)
            except ValueError as error:
                raise ValueError(f"reward.functions.{name}: {error}") from error
            total, applied = total + function.spec.weight * score, applied + 1
            details[name] = score
            for key, item in more.items():
                if key in _FROM_FIRST:
                    details.setdefault(key, item)
                else:
                    details[f"{name}.{key}"] = item
        if not applied:
            names = ", ".join(function.spec.name for function in self._functions)
            raise ValueError(f"none of reward.functions ({names}) gave a score: all returned None.")
        if not abs(total) <= MAX_SCORE:
            raise ValueError(
                f"the weighted sum of reward.functions is {total}; expected at most {MAX_SCORE:g} in size."
            )
        check_size(details)
        return total, details

    def _loop(self) -> EventLoop:
        if self._event_loop is None:
            from verl_like.reward.event_loop import (
                EventLoop,
            )  # asyncio is half of this process's start-up time, and few functions need it

            self._event_loop = EventLoop()
        return self._event_loop
