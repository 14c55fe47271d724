"""What a reward model or a judge says of rows, as it travels from the workers to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_like.protocol import Array


@dataclass(frozen=True, slots=True)
class ModelScores:
    """One score for each of B rows, or why there is none.

    Args:
        scores: [B] float32, NaN where there is none.
        messages: [B] object, str: why a row has no score; empty where it has one.
        details: [B] object, dicts of numbers and short text worth keeping beside the score.
    """

    scores: Array
    messages: Array
    details: Array

    @classmethod
    def of(
        cls, scores: Sequence[float], messages: Sequence[str], details: Sequence[dict[str, float | str]]
    ) -> ModelScores:
        """A score that is not finite counts as none."""
        found = np.array(scores, np.float32)
        is_finite = np.isfinite(found)
        reasons = [
            message or ("" if fine else f"the model gave the score {score}")
            for score, message, fine in zip(found, messages, is_finite, strict=True)
        ]
        return cls(np.where(is_finite, found, np.float32(np.nan)), _objects(reasons), _objects(details))

    @classmethod
    def concat(cls, parts: Sequence[ModelScores]) -> ModelScores:
        """The rows of all parts, one after the other."""
        if not parts:
            return cls.of([], [], [])
        return cls(
            *(
                np.concatenate(columns)
                for columns in zip(*((p.scores, p.messages, p.details) for p in parts), strict=True)
            )
        )

    def select(self, rows: Array) -> ModelScores:
        return ModelScores(self.scores[rows], self.messages[rows], self.details[rows])

    def __len__(self) -> int:
        return len(self.scores)


def _objects(items: Sequence[object]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array
