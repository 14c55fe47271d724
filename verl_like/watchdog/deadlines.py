"""Deadlines for the silence of a process in each stage, learnt from the run itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from verl_like.telemetry.heartbeat import Reading, Silence

FACTOR = 5.0  # times the longest silence seen
FIRST_FACTOR = 10.0  # times the floor, in a stage that no process has completed yet


@dataclass
class Deadlines:
    """Tracks the longest silence of each stage over all processes seen.

    Args:
        floor_s: shortest deadline (``trainer.stall_after_s``).
    """

    floor_s: float
    _known: dict[str, Silence] = field(default_factory=dict)

    def learn(self, readings: Iterable[Reading]) -> None:
        """Update the longest silences from the heartbeats of the processes."""
        for reading in readings:
            for stage, silence in reading.silences.items():
                known = self._known.get(stage, silence)
                longest_s = max(known.longest_s, silence.longest_s)
                self._known[stage] = Silence(longest_s, max(known.num_visits, silence.num_visits))

    def is_learnt(self, stage: str) -> bool:
        """Return whether a process has completed the stage, so that its deadline is based on a measurement."""
        return stage in self._known and self._known[stage].num_visits > 0

    def of(self, stage: str) -> float:
        """Return the seconds of silence after which a process in this stage counts as hung."""
        longest_s = self._known[stage].longest_s if stage in self._known else 0.0
        known = max(self.floor_s, FACTOR * longest_s)
        return known if self.is_learnt(stage) else max(known, FIRST_FACTOR * self.floor_s)
