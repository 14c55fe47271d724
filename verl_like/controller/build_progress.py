"""Report the progress of worker builds in the start's progress line; large models take minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.ray_calls import Call
from verl_like.telemetry.startup import Startup

ASK_EVERY_S = 2.0


class BuildProgress:
    """Queries one process at a time without blocking.

    Args:
        actors: actor handles, keyed by their names in messages.
    """

    def __init__(self, actors: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._actors, self._clock = actors, clock
        self._asked: tuple[str, Any] | None = None
        self._asked_at = clock()

    def report(self, pending: Sequence[str]) -> None:
        """Report what the first process that is not built yet is doing."""
        if self._asked is not None:
            self._show(*self._asked, num_ready=len(self._actors) - len(pending))
        elif self._clock() - self._asked_at >= ASK_EVERY_S:
            who, self._asked_at = pending[0], self._clock()
            [question] = ray_calls.begun([Call(self._actors[who].status)])
            self._asked = who, question

    def _show(self, who: str, question: Any, *, num_ready: int) -> None:
        try:
            answers, _ = ray_calls.arrived([question], timeout_s=0.0)
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            return  # the wait for the process itself reports the reason
        for _, status in answers:
            self._asked = None
            stage = status["stage"].removeprefix("build/")
            current(Startup).so_far(
                f"loading models: {who} is at {stage}, {num_ready} of {len(self._actors)} are ready"
            )
