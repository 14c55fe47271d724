"""Waits for calls under way: every wait has a stage, a deadline and the names of those waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import ray

from verl_like.controller import ray_calls
from verl_like.controller.errors import INTERRUPT, StageTimeout
from verl_like.controller.failures import Failed, explained, failures
from verl_like.controller.store import STORE, Reply
from verl_like.controller.verdicts import VERDICTS
from verl_like.telemetry.heartbeat import HEARTBEAT

POLL_S = 0.5  # how soon a failure on one rank, or Ctrl-C, ends the wait for the others
MAX_NAMED = 8
STARTS = ("start", "build", "reward_start", "watchdog_start")  # stages in which processes are being started

Watching: TypeAlias = Callable[[Iterable[str]], AbstractContextManager[None]]


def unwatched(names: Iterable[str]) -> AbstractContextManager[None]:
    """Report to nobody whom this process waits for."""
    return nullcontext()


class Waits(NamedTuple):
    """How a process waits for what ranks stream.

    Args:
        all: returns the results of references, each given with the name of its producer.
        first: returns (reference, result) pairs of those that have arrived first.
        watching: entered for each poll, which takes half a second at most, with the names of those waited for.
    """

    stage: str
    timeout_s: float
    all: Callable[[Mapping[ray.ObjectRef, str]], list[Any]]
    first: Callable[[Mapping[ray.ObjectRef, str]], list[tuple[ray.ObjectRef, Any]]]
    watching: Watching


def driver_waits(stage: str, timeout_s: float) -> Waits:
    """The driver's waits for a stream, which Ctrl-C and verdicts end."""
    every = partial(wait, stage=stage, timeout_s=timeout_s)
    first = partial(_soonest, stage=stage, timeout_s=timeout_s)
    return Waits(stage, timeout_s, every, first, partial(_streaming, stage))


def wait(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool = False,
    meanwhile: Callable[[list[str]], None] | None = None,
) -> list[Any]:
    """Return the results of all refs, in order; for the driver.

    Args:
        refs: each reference with the name of whoever produces it ("rank 3").
        stage: what is being waited for, for messages.
        timeout_s: deadline in seconds.
        interruptible: whether Ctrl-C may end this wait (stages that change nothing).
        meanwhile: called twice a second with the names of those that are still waited for.

    Raises:
        WorkerError: a producer failed; the message is that of the earliest failure.
        FeedbackError: it failed because the rewards cannot be used.
        StageTimeout: the deadline passed.
        Interrupted: Ctrl-C, where ``interruptible``.
        OutOfGrace: Ctrl-C, and the time since then that ``trainer.grace_s`` leaves.
    """
    results = dict(arrivals(refs, stage=stage, timeout_s=timeout_s, interruptible=interruptible, meanwhile=meanwhile))
    return [results[ref] for ref in refs]


def arrivals(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool = False,
    meanwhile: Callable[[list[str]], None] | None = None,
) -> Iterator[tuple[ray.ObjectRef, Any]]:
    """Yield (reference, result) pairs, those of the last half second at once; otherwise as :func:`wait`."""
    polled = _driver_polls(refs, stage=stage, timeout_s=timeout_s, interruptible=interruptible, meanwhile=meanwhile)
    for arrived in polled:
        yield from arrived


def _soonest(refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float) -> list[tuple[ray.ObjectRef, Any]]:
    """Return (reference, result) pairs of those that arrive first; otherwise as :func:`wait`, interruptible."""
    polled = _driver_polls(refs, stage=stage, timeout_s=timeout_s, interruptible=True, at_least=1)
    return next(arrived for arrived in polled if arrived)


def wait_beside(refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float, check: Callable[[], None]) -> None:
    """Return when all refs have arrived; for a thread of the driver that knows nothing of how the run waits and ends.

    Args:
        check: called twice a second; what it raises ends the wait.

    Raises:
        WorkerError, StageTimeout: as of :func:`wait`.
    """
    for _ in polls(refs, stage=stage, timeout_s=timeout_s, failed=partial(explained, stage=stage)):
        check()


def _driver_polls(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool,
    meanwhile: Callable[[list[str]], None] | None = None,
    at_least: int | None = None,
) -> Iterator[list[tuple[ray.ObjectRef, Any]]]:
    """Yield what each poll finds; arguments as of :func:`wait` and :func:`polls`."""
    failed = partial(explained, stage=stage)
    for results, pending in polls(
        refs, stage=stage, timeout_s=timeout_s, failed=failed, at_least=at_least, watching=_waiting
    ):
        yield [(ref, _opened(result)) for ref, result in results]
        VERDICTS.check(is_start=stage in STARTS)
        if interruptible:
            INTERRUPT.stop_before(stage)
        if pending:
            INTERRUPT.stop_in(stage)
        if pending and meanwhile is not None:
            meanwhile([refs[ref] for ref in pending])


def polls(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    failed: Callable[[list[Failed]], Exception],
    began_at: float | None = None,
    at_least: int | None = None,
    watching: Watching = unwatched,
) -> Iterator[tuple[list[tuple[ray.ObjectRef, Any]], Sequence[ray.ObjectRef]]]:
    """Yield what each poll finds, (reference, value) pairs, and those that are still pending, until all have arrived.

    Args:
        refs: each reference with the name of whoever produces it.
        failed: makes the error that is raised for failed calls.
        began_at: when the deadline's time began (monotonic); None for now.
        at_least: a poll ends when so many have arrived, or all, or after half a second; None for all.
        watching: as of :class:`Waits`.

    Raises:
        StageTimeout: the deadline passed.
    """
    deadline = (time.monotonic() if began_at is None else began_at) + timeout_s
    pending = list(refs)
    while pending:
        poll_s = min(POLL_S, max(0.0, deadline - time.monotonic()))
        try:
            with watching(refs[ref] for ref in pending):
                results, waiting = ray_calls.arrived(pending, timeout_s=poll_s, at_least=at_least)
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            raise failed(failures({ref: refs[ref] for ref in pending})) from None
        yield results, waiting
        pending = waiting
        if pending and time.monotonic() >= deadline:
            raise timed_out(stage, timeout_s, [refs[ref] for ref in pending])


@contextmanager
def _waiting(names: Iterable[str]) -> Iterator[None]:
    """Have the heartbeat name those whom this process waits for."""
    with HEARTBEAT.waiting(named(names)):
        yield


@contextmanager
def _streaming(stage: str, names: Iterable[str]) -> Iterator[None]:
    """A driver's poll of streams, after which Ctrl-C or a verdict ends the wait."""
    with _waiting(names):
        yield
    INTERRUPT.stop_before(stage)
    VERDICTS.check()


def _opened(result: Any) -> Any:
    if not isinstance(result, Reply):
        return result
    STORE.add_fetched(result.fetched_bytes)
    return result.value


def named(whom: Iterable[str]) -> str:
    """Return some of those who are waited for, and how many more there are."""
    names = list(dict.fromkeys(whom))
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def timed_out(stage: str, timeout_s: float, waited_for: Iterable[str]) -> StageTimeout:
    """Return the error of a stage that outlasted its deadline."""
    return StageTimeout(
        f"stage {stage!r} took longer than {timeout_s:.0f} s; still waiting for {', '.join(waited_for)}."
    )
