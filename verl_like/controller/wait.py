"""The one place where the driver waits: every wait has a stage, a deadline and the names of those waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ray

from verl_like.controller import ray_calls
from verl_like.controller.errors import INTERRUPT, StageTimeout
from verl_like.controller.failures import explained, failures
from verl_like.controller.store import STORE, Reply
from verl_like.controller.verdicts import VERDICTS
from verl_like.telemetry.heartbeat import HEARTBEAT

POLL_S = 0.5  # how soon a failure on one rank, or Ctrl-C, ends the wait for the others
MAX_NAMED = 8
STARTS = ("start", "build", "reward_start", "watchdog_start")  # stages in which processes are being started


def wait(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool = False,
    meanwhile: Callable[[list[str]], None] | None = None,
) -> list[Any]:
    """Results of all refs, in order.

    Args:
        refs: each reference with the name of whoever produces it ("rank 3").
        stage: what is being waited for, for messages.
        timeout_s: deadline in seconds.
        interruptible: whether Ctrl-C may end this wait (stages that change nothing).
        meanwhile: called twice a second with the names of those that are still waited for.

    Raises:
        WorkerError: a producer failed; the earliest failure is told.
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
    """(reference, result) pairs, those of the last half second at once; otherwise as :func:`wait`."""
    looks = _looks(
        refs, stage=stage, timeout_s=timeout_s, interruptible=interruptible, meanwhile=meanwhile, at_least=len(refs)
    )
    for arrived in looks:
        yield from arrived


def soonest(
    refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float, interruptible: bool = False
) -> list[tuple[ray.ObjectRef, Any]]:
    """(reference, result) pairs of those that are there first; otherwise as :func:`wait`."""
    looks = _looks(refs, stage=stage, timeout_s=timeout_s, interruptible=interruptible, meanwhile=None, at_least=1)
    return next(arrived for arrived in looks if arrived)


def wait_beside(refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float, look: Callable[[], None]) -> None:
    """Return when all refs are there; for another thread than the driver's own, of whose waiting and ending it knows
    nothing.

    Args:
        look: done twice a second; what it raises ends the wait.

    Raises:
        WorkerError, StageTimeout: as of :func:`wait`.
    """
    deadline = time.monotonic() + timeout_s
    pending = list(refs)
    while pending:
        try:
            _, pending = ray_calls.arrived(pending, timeout_s=min(POLL_S, max(0.0, deadline - time.monotonic())))
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            raise explained(failures({ref: refs[ref] for ref in pending}), stage) from None
        look()
        if pending and time.monotonic() >= deadline:
            raise timed_out(stage, timeout_s, [refs[ref] for ref in pending])


def _looks(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool,
    meanwhile: Callable[[list[str]], None] | None,
    at_least: int,
) -> Iterator[list[tuple[ray.ObjectRef, Any]]]:
    """What each look finds, which ends when ``at_least`` so many are there, or all, or after half a second."""
    deadline = time.monotonic() + timeout_s
    pending = list(refs)
    while pending:
        poll_s = min(POLL_S, max(0.0, deadline - time.monotonic()))
        try:
            with HEARTBEAT.waiting(named(refs[ref] for ref in pending)):
                results, waiting = ray_calls.arrived(pending, timeout_s=poll_s, at_least=at_least)
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            raise explained(failures({ref: refs[ref] for ref in pending}), stage) from None
        yield [(ref, _opened(result)) for ref, result in results]
        pending = waiting
        VERDICTS.check(is_start=stage in STARTS)
        if interruptible:
            INTERRUPT.stop_before(stage)
        if pending:
            INTERRUPT.stop_in(stage)
        if pending and meanwhile is not None:
            meanwhile([refs[ref] for ref in pending])
        if pending and time.monotonic() >= deadline:
            raise timed_out(stage, timeout_s, [refs[ref] for ref in pending])


def _opened(result: Any) -> Any:
    if not isinstance(result, Reply):
        return result
    STORE.add_fetched(result.fetched_bytes)
    return result.value


def named(whom: Iterable[str]) -> str:
    """Some of those who are waited for, and how many more there are."""
    names = list(dict.fromkeys(whom))
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def timed_out(stage: str, timeout_s: float, waited_for: Iterable[str]) -> StageTimeout:
    """The error of a stage that outlasted its deadline."""
    return StageTimeout(
        f"stage {stage!r} took longer than {timeout_s:.0f} s; still waiting for {', '.join(waited_for)}."
    )
