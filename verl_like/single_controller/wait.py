"""The one place where the driver waits: every wait has a stage, a deadline and the names of those waited for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ray

from verl_like.disk import DiskRefused
from verl_like.single_controller import ray_calls
from verl_like.single_controller.errors import (
    INTERRUPT,
    Interrupted,
    RunError,
    StageTimeout,
    WorkerError,
    WorkerFailure,
)
from verl_like.single_controller.store import STORE, Reply

POLL_S = 0.5  # how soon a failure on one rank, or Ctrl-C, ends the wait for the others
GRACE_S = 2.0  # how long to collect the other ranks' failures, so that the first one in time can be told


def wait(refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float, interruptible: bool = False) -> list[Any]:
    """Results of all refs, in order.

    Args:
        refs: each reference with the name of whoever produces it ("rank 3").
        stage: what is being waited for, for messages.
        timeout_s: deadline in seconds.
        interruptible: whether Ctrl-C may end this wait (stages that change nothing).

    Raises:
        WorkerError: a producer failed; the earliest failure is told.
        StageTimeout: the deadline passed.
        Interrupted: Ctrl-C, where ``interruptible``.
    """
    results = dict(arrivals(refs, stage=stage, timeout_s=timeout_s, interruptible=interruptible))
    return [results[ref] for ref in refs]


def arrivals(
    refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float, interruptible: bool = False
) -> Iterator[tuple[ray.ObjectRef, Any]]:
    """(reference, result) pairs, those of the last half second at once; otherwise as :func:`wait`."""
    deadline = time.monotonic() + timeout_s
    pending = list(refs)
    while pending:
        try:
            results, waiting = ray_calls.arrived(pending, timeout_s=min(POLL_S, max(0.0, deadline - time.monotonic())))
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            raise failure({ref: refs[ref] for ref in pending}, stage) from None
        for ref, result in results:
            yield ref, _opened(result)
        pending = waiting
        if interruptible and INTERRUPT.is_set():
            raise Interrupted(stage)
        if pending and time.monotonic() >= deadline:
            raise timed_out(stage, timeout_s, [refs[ref] for ref in pending])


def _opened(result: Any) -> Any:
    if not isinstance(result, Reply):
        return result
    STORE.add_fetched(result.fetched_bytes)
    return result.value


def timed_out(stage: str, timeout_s: float, waited_for: Iterable[str]) -> StageTimeout:
    """The error of a stage that outlasted its deadline."""
    return StageTimeout(
        f"stage {stage!r} took longer than {timeout_s:.0f} s; still waiting for {', '.join(waited_for)}."
    )


def failure(refs: Mapping[ray.ObjectRef, str], stage: str) -> WorkerError:
    """The error that explains a failed group of calls: the earliest real traceback, else who died."""
    ready, _ = ray_calls.split(list(refs), timeout_s=GRACE_S)
    raised: list[WorkerFailure] = []
    other: list[str] = []
    for ref in ready:
        try:
            ray_calls.fetched([ref], timeout_s=GRACE_S)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, WorkerFailure):
                raised.append(error.cause)
            elif isinstance(error.cause, RunError | DiskRefused):  # a sentence for the user
                return WorkerError(f"stage {stage!r} failed: {error.cause}")
            else:
                other.append(f"{refs[ref]}: {error}")
        except ray.exceptions.RayActorError as error:
            other.insert(0, f"{refs[ref]} died: {error}")
    # A process that died takes the others' collectives with it; its death is the cause, their errors are not.
    if other or not raised:
        return WorkerError(f"stage {stage!r} failed. " + "\n".join([*other, *map(str, raised)]))
    return WorkerError(f"stage {stage!r} failed: {min(raised, key=lambda f: f.raised_at)}")
