"""Run async reward functions: many calls concurrently, each with its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from verl_like.reward.forks import end_if_forked
from verl_like.reward.results import Details, failed
from verl_like.reward.scorer_messages import Outcome, Sample

Call = Callable[[Sample], Awaitable[tuple[float, Details]]]


class EventLoop:
    """One event loop for all samples of the process, so that clients and sessions can be reused."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Return the result of the awaitable."""
        return self._runner.run(_as_coroutine(awaitable))

    def outcomes(
        self, samples: Sequence[Sample], call: Call, *, max_concurrency: int, timeout_s: float
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield (position, outcome) pairs as they become ready.

        The loop is paused while the caller handles a pair.
        """
        arrived: asyncio.Queue[tuple[int, Outcome]] = asyncio.Queue()
        slots = asyncio.Semaphore(max_concurrency)

        async def score(i: int, sample: Sample) -> None:
            async with slots:
                arrived.put_nowait((i, await _outcome(call, sample, timeout_s)))

        async def start() -> list[asyncio.Task[None]]:
            return [asyncio.create_task(score(i, sample)) for i, sample in enumerate(samples)]

        for _ in self._runner.run(start()):
            yield self._runner.run(arrived.get())


async def _outcome(call: Call, sample: Sample, timeout_s: float) -> Outcome:
    started = time.perf_counter()
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            score, details = await call(sample)
    except BaseException as error:  # noqa: BLE001 (user code may raise anything)
        if deadline.expired():
            message = f"no score within reward.timeout_s={timeout_s:g}; the call was cancelled"
            return Outcome("timeout", None, {}, message, time.perf_counter() - started)
        return failed(error, started)
    finally:
        end_if_forked()  # before a forked process runs the loop's other calls, whose connections belong to its parent
    return Outcome("ok", score, details, "", time.perf_counter() - started)


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
