"""Samples and scorer processes for the tests of rewards."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from verl_like.reward.scorer_messages import Outcome, Sample, Task
from verl_like.reward.scores import Scores
from verl_like.reward.specs import FunctionSpec
from verl_like.reward.team import ScorerTeam


def sample(
    response: str,
    truth: Any = "42",
    *,
    data_source: str = "s",
    columns: dict[str, Any] | None = None,
    messages: Any = "6*7=",
    **extra: Any,
) -> Sample:
    return Sample(
        response=response,
        prompt="6*7=",
        messages=messages,
        data_source=data_source,
        ground_truth=truth,
        extra_info=extra,
        columns=columns or {},
        response_ids=array("i", [7] * len(response)),
    )


def task(
    function: str, *, timeout_s: float = 5.0, max_memory_gib: float = 1.0, max_concurrency: int = 8, **kwargs: Any
) -> Task:
    return Task(
        functions=(FunctionSpec("", function, kwargs),),
        timeout_s=timeout_s,
        max_memory_gib=max_memory_gib,
        max_concurrency=max_concurrency,
    )


@contextmanager
def scorer_process(wanted: Task) -> Iterator[ScorerTeam]:
    """One scorer process with its spare."""
    with ScorerTeam(wanted, num_processes=1) as scorer:
        yield scorer


def messages(scores: Scores) -> list[str]:
    """Return the reason why each row has no score; empty if it has one."""
    return [failure.message if failure is not None else "" for failure in scores.failure]


def statuses(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]
