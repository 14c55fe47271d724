"""Count the prompts of a run and of a step by their outcome."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from verl_like.controller.remote_batch import RemoteBatch
from verl_like.protocol import Array

Outcome = Literal["trained", "filtered", "failed"]


@dataclass(kw_only=True, slots=True)
class PromptCounts:
    """Counts prompts since the start of the run; a prompt of a later epoch counts again.

    A prompt is *in flight* from its draw until it is recorded once: as *trained* if an update received a response to
    it; as *failed* if none of its responses has a score (or its greedy baseline has none); as *filtered* if its
    responses are scored but none is learnt from. The last applies to equal scores under ``filter_groups``, more groups
    than the batch holds, only over-long responses, none resampled, or no advantage if such rows are skipped.

    Each step has its own counts, which are added to the run's when the step is closed. The prompts of a dropped step
    are not recorded, and are drawn again.
    """

    drawn: int = 0
    trained: int = 0
    filtered: int = 0
    failed: int = 0
    in_flight: int = 0

    def draw(self, count: int) -> None:
        self.drawn += count
        self.in_flight += count

    def record(self, count: int, outcome: Outcome) -> None:
        """Record the outcome of ``count`` prompts in flight."""
        assert 0 <= count <= self.in_flight, f"{count} of {self.in_flight} prompts in flight cannot be {outcome}"
        self.in_flight -= count
        setattr(self, outcome, getattr(self, outcome) + count)

    def keep_in_flight(self, count: int, outcome: Outcome) -> None:
        """Keep ``count`` prompts in flight and record ``outcome`` for the rest."""
        self.record(self.in_flight - count, outcome)

    def plus(self, other: PromptCounts) -> PromptCounts:
        """Return the sum of both counts."""
        return PromptCounts(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    def check(self, *, drawn: int) -> None:
        """Compare the counts after a finished step with the data loader's count."""
        recorded = self.trained + self.filtered + self.failed + self.in_flight
        assert self.drawn == recorded, f"{self} does not add up: {recorded} prompts are recorded"
        assert not self.in_flight, f"{self}: the step is over, but some of its prompts are in flight"
        assert self.drawn == drawn, f"{self}, but the data loader has given {drawn} prompts"

    def metrics(self) -> dict[str, float]:
        return {
            "prompts/drawn": float(self.drawn),
            "prompts/trained": float(self.trained),
            "prompts/filtered": float(self.filtered),
            "prompts/failed": float(self.failed),
            "prompts/in_flight": float(self.in_flight),
        }

    def __str__(self) -> str:
        parts = [f"{self.drawn} drawn: {self.trained} trained, {self.filtered} filtered, {self.failed} failed"]
        return ", ".join([*parts, f"{self.in_flight} in flight"] if self.in_flight else parts)


def num_prompts(batch: RemoteBatch, rows: Array | None = None) -> int:
    """Count the prompts that have a row in the batch, or one among ``rows`` ([B] bool)."""
    group_ids = batch.facts["group_id"]
    return len(np.unique(group_ids if rows is None else group_ids[rows]))
