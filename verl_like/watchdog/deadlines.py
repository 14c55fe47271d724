"""How long a process may be silent in a stage: learnt from the run itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from verl_like.telemetry.heartbeat import Reading, Silence

FACTOR = 5.0  # times the longest silence seen
FIRST_FACTOR = 10.0  # times the floor, in a stage that nobody has been through yet


@dataclass
class Deadlines:
    """The longest silence of each stage, over all processes that have been seen.

    Args:
        floor_s: no deadline is shorter (``trainer.stall_after_s``).
    """

    floor_s: float
    _known: dict[str, Silence] = field(default_factory=dict)

    def learn(self, readings: Iterable[Reading]) -> None:
        """Take in what the processes know of themselves."""
        for reading in readings:
            for stage, silence in reading.silences.items():
                known = self._known.get(stage, silence)
                longest_s = max(known.longest_s, silence.longest_s)
                self._known[stage] = Silence(longest_s, max(known.num_visits, silence.num_visits))

    def is_learnt(self, stage: str) -> bool:
        """Whether somebody has been through the stage, so that its deadline is more than a guess."""
        return stage in self._known and self._known[stage].num_visits > 0

    def of(self, stage: str) -> float:
        """Seconds of silence after which a process in this stage stands still."""
        longest_s = self._known[stage].longest_s if stage in self._known else 0.0
        known = max(self.floor_s, FACTOR * longest_s)
        return known if self.is_learnt(stage) else max(known, FIRST_FACTOR * self.floor_s)
