"""Receivers of a sync's weights: the policy depends on a sink, never on an engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from verl_like.backends.base import RolloutEngine


class WeightSink(Protocol):
    """The receiver of a sync. Each sync calls ``begin``, ``take`` and ``finish`` once, in this order."""

    def begin(self, version: int, *, keeps_requests: bool = False) -> None:
        """Announce weights of this version.

        Args:
            keeps_requests: let unfinished requests continue with the new weights; if False, they are an error.
        """

    def take(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Load all (Hugging Face name, full tensor) pairs from one lazy iterable.

        The tensors may be the trainer's own, so the sink copies what it keeps.
        """

    def finish(self) -> int:
        """Check that every weight has arrived, make the receiver ready to generate, and return the version it holds."""


class EngineSink:
    """Passes the weights to a rollout engine in this process."""

    def __init__(self, engine: RolloutEngine) -> None:
        self._engine = engine

    def begin(self, version: int, *, keeps_requests: bool = False) -> None:
        self._engine.begin_sync(version, keeps_requests=keeps_requests)

    def take(self, weights: Iterable[tuple[str, Any]]) -> None:
        self._engine.load(weights)

    def finish(self) -> int:
        self._engine.finish_sync()
        self._engine.wake()
        return self._engine.version
