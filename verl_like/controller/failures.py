"""Why a group of calls failed: the failure of every rank, and the one error that explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import ray

from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.errors import FeedbackError, RunError, StageTimeout, WorkerError, WorkerFailure, WorkerRefusal
from verl_like.controller.verdicts import Verdicts
from verl_like.disk import DiskRefused

GRACE_S = 2.0  # how long to collect the other ranks' failures, so that the earliest can be reported
Raised: TypeAlias = WorkerFailure | FeedbackError | RunError | DiskRefused | StageTimeout


@dataclass(frozen=True, slots=True)
class Death:
    """The process of a call has ended; ``seen`` is Ray's description."""

    seen: str


@dataclass(frozen=True, slots=True)
class Failed:
    """How one call failed: the worker's error, the error's text if its class is not ours, or the worker's death."""

    who: str
    why: Raised | Death | str


class RanksFailed(Exception):
    """Raised by a tree aggregator; contains the failures of the ranks it called."""

    def __init__(self, failed: list[Failed]) -> None:
        super().__init__(failed)
        self.failed = failed


def failures(refs: Mapping[ray.ObjectRef, str]) -> list[Failed]:
    """Return the calls that have failed or fail within ``GRACE_S``."""
    ready, _ = ray_calls.split(list(refs), timeout_s=GRACE_S)
    found: list[Failed] = []
    for ref in ready:
        try:
            ray_calls.fetched([ref], timeout_s=GRACE_S)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RanksFailed):
                found += error.cause.failed
            else:
                found.append(Failed(refs[ref], error.cause if isinstance(error.cause, Raised) else str(error)))
        except ray.exceptions.RayActorError as error:
            # Ray's own description, without its guesses at the cause
            seen = str(error).split("Worker exit detail: ")[-1].split(" Some common causes")[0].strip()
            found.append(Failed(refs[ref], Death(seen)))
    return found


def explained(failed: Sequence[Failed], stage: str) -> Exception:
    """Return the error that explains a failed stage: the deaths if there are any, else the earliest traceback."""
    raised: list[WorkerFailure] = []
    late: list[StageTimeout] = []
    other: list[str] = []
    died: list[str] = []
    for each in failed:
        match each.why:
            case WorkerFailure() as failure:
                raised.append(failure)
            case FeedbackError() as error:  # the policy can be kept
                return FeedbackError(str(error))
            case WorkerError() as error:  # a sentence for the user; its class says whether a restart may help
                return type(error)(f"stage {stage!r} failed: {error}")
            case RunError() | DiskRefused() as error:  # a sentence for the user
                return WorkerRefusal(f"stage {stage!r} failed: {error}")
            case StageTimeout() as error:
                late.append(error)
            case Death(seen):
                known = current(Verdicts).death_report(each.who)
                died.append(f"{each.who} died{f', {known}' if known else ''}. Ray: {seen}")
            case text:
                other.append(f"{each.who}: {text}")
    # The death of a process makes the collectives of the other ranks fail; it is the cause, their errors are
    # consequences.
    if died:
        echoes = [f"{failure.where} then failed: {failure.last_line}" for failure in raised]
        return WorkerError(f"stage {stage!r} failed: " + "\n".join([*died, *other, *echoes]))
    if raised and not other:
        return WorkerError(f"stage {stage!r} failed: {min(raised, key=lambda f: f.raised_at)}")
    if late and not other:
        return late[0]
    return WorkerError(f"stage {stage!r} failed. " + "\n".join([*other, *map(str, raised)]))
