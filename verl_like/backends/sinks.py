"""Receivers of a sync's weights: the policy depends on a sink, never on an engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from verl_like.backends.base import OnRunning, RolloutEngine


class WeightSink(Protocol):
    """The receiver of a sync. Each sync calls ``begin``, ``take`` and ``finish`` once, in this order."""

    def begin(self, version: int) -> None:
        """Announce weights of this version."""

    def take(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Load all (Hugging Face name, full tensor) pairs from one lazy iterable.

        A tensor is read-only, and valid until the next one is taken: the sink copies what it keeps.
        """

    def finish(self) -> int:
        """Check that every weight has arrived, make the receiver ready to generate, and return the version it holds."""


class EngineSink:
    """Passes the weights to a rollout engine in this process.

    Args:
        on_running: what happens to the engine's unfinished requests.
    """

    def __init__(self, engine: RolloutEngine, on_running: OnRunning = OnRunning.REFUSE) -> None:
        self._engine, self._on_running = engine, on_running

    def begin(self, version: int) -> None:
        self._engine.begin_sync(version, on_running=self._on_running)

    def take(self, weights: Iterable[tuple[str, Any]]) -> None:
        self._engine.load(weights)

    def finish(self) -> int:
        self._engine.finish_sync()
        self._engine.wake()
        return self._engine.version
