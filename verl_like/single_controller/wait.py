"""The one place where the driver waits: every wait has a stage, a deadline and the names of those waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ray

from verl_like.disk import DiskRefused
from verl_like.single_controller import ray_calls
from verl_like.single_controller.errors import (
    INTERRUPT,
    FeedbackError,
    RunError,
    StageTimeout,
    WorkerError,
    WorkerFailure,
    WorkerRefusal,
)
from verl_like.single_controller.store import STORE, Reply
from verl_like.single_controller.verdicts import VERDICTS
from verl_like.telemetry.beacon import BEACON

POLL_S = 0.5  # how soon a failure on one rank, or Ctrl-C, ends the wait for the others
MAX_NAMED = 8
GRACE_S = 2.0  # how long to collect the other ranks' failures, so that the first one in time can be told


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
    deadline = time.monotonic() + timeout_s
    pending = list(refs)
    while pending:
        poll_s = min(POLL_S, max(0.0, deadline - time.monotonic()))
        try:
            with BEACON.waiting(named(refs[ref] for ref in pending)):
                results, waiting = ray_calls.arrived(pending, timeout_s=poll_s)
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            raise failure({ref: refs[ref] for ref in pending}, stage) from None
        for ref, result in results:
            yield ref, _opened(result)
        pending = waiting
        VERDICTS.check()
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


def failure(refs: Mapping[ray.ObjectRef, str], stage: str) -> WorkerError | FeedbackError:
    """The error that explains a failed group of calls: the earliest real traceback, else who died."""
    ready, _ = ray_calls.split(list(refs), timeout_s=GRACE_S)
    raised: list[WorkerFailure] = []
    other: list[str] = []
    died: list[str] = []
    for ref in ready:
        try:
            ray_calls.fetched([ref], timeout_s=GRACE_S)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, WorkerFailure):
                raised.append(error.cause)
            elif isinstance(error.cause, FeedbackError):  # the policy can be kept
                return FeedbackError(str(error.cause))
            elif isinstance(error.cause, RunError | DiskRefused):  # a sentence for the user
                return WorkerRefusal(f"stage {stage!r} failed: {error.cause}")
            else:
                other.append(f"{refs[ref]}: {error}")
        except ray.exceptions.RayActorError as error:
            died.append(_death(refs[ref], error))
    # A process that died takes the others' collectives with it; its death is the cause, their errors are not.
    if died:
        echoes = [f"{failure.where} failed then: {failure.last_line}" for failure in raised]
        return WorkerError(f"stage {stage!r} failed: " + "\n".join([*died, *other, *echoes]))
    if other or not raised:
        return WorkerError(f"stage {stage!r} failed. " + "\n".join([*other, *map(str, raised)]))
    return WorkerError(f"stage {stage!r} failed: {min(raised, key=lambda f: f.raised_at)}")


def _death(who: str, error: ray.exceptions.RayActorError) -> str:
    """A line on a process that is gone: what was known of it, and how Ray saw it end, without Ray's guesses."""
    seen = str(error).split("Worker exit detail: ")[-1].split(" Some common causes")[0].strip()
    known = VERDICTS.obituary(who)
    return f"{who} died{f', {known}' if known else ''}. Ray: {seen}"
