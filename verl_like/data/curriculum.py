"""A curriculum by measured difficulty: prompts that are new, or neither too easy nor too hard."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_like.config.schema import CurriculumConfig


class Curriculum:
    """Selects each batch by the mean scores measured so far.

    A share of the batch consists of prompts that were never drawn, while there are any. The rest is drawn without
    replacement from those that were, with weight 1 if the mean score is in the band and a lower weight otherwise:
    scores become stale as the policy moves, so a prompt that was too hard must be tried again.

    The draw depends only on the seed, the number of the batch and the scores before it.
    """

    learns = True

    def __init__(self, num_rows: int, *, batch_size: int, config: CurriculumConfig, seed: int) -> None:
        self._batch_size, self._config, self._seed = batch_size, config, seed
        self.batches_per_epoch = num_rows // batch_size
        self._given = 0
        self._means = np.full(num_rows, np.nan, "<f8")  # NaN if no response has had a score
        self._is_drawn = np.zeros(num_rows, bool)

    def next_batch(self) -> list[int]:
        rng = np.random.default_rng([self._seed, self._given])
        unseen, seen = np.flatnonzero(~self._is_drawn), np.flatnonzero(self._is_drawn)
        # As a decimal fraction, as in the configuration: 0.07 * 100 is more than 7 in floating point.
        wanted = math.ceil(Fraction(str(self._config.unseen_frac)) * self._batch_size)
        num_unseen = max(min(wanted, len(unseen)), self._batch_size - len(seen))
        weights = np.where(self._is_in_band()[seen], 1.0, self._config.outside_weight)
        # The smallest of exponential times with these rates are a draw without replacement by weight (Efraimidis and
        # Spirakis, 2006).
        times = -np.log1p(-rng.random(len(seen))) / weights
        repeated = seen[np.argsort(times, kind="stable")[: self._batch_size - num_unseen]]
        # Mini-batches are cut from the batch in its order, and each should contain both.
        rows = rng.permutation(np.concatenate([rng.permutation(unseen)[:num_unseen], repeated]))
        self._is_drawn[rows] = True
        self._given += 1
        return [int(row) for row in rows]

    def feedback(self, scores: Mapping[int, float]) -> None:
        newest = self._config.newest_frac
        for row, score in scores.items():
            mean = float(self._means[row])
            self._means[row] = score if math.isnan(mean) else (1 - newest) * mean + newest * score

    def metrics(self) -> dict[str, float]:
        num_measured = int((~np.isnan(self._means)).sum())
        return {
            "curriculum/unseen_frac": float((~self._is_drawn).mean()),
            "curriculum/in_band_frac": float(self._is_in_band().sum()) / max(num_measured, 1),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "given": self._given,
            "means": base64.b64encode(self._means.tobytes()).decode(),
            "is_drawn": base64.b64encode(np.packbits(self._is_drawn).tobytes()).decode(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._given = state["given"]
        self._means = np.frombuffer(base64.b64decode(state["means"]), "<f8").copy()
        bits = np.frombuffer(base64.b64decode(state["is_drawn"]), np.uint8)
        self._is_drawn = np.unpackbits(bits, count=len(self._means)).astype(bool)

    def _is_in_band(self) -> NDArray[np.bool_]:
        """Return whether each row's mean score is known and in the band."""
        return (self._config.low <= self._means) & (self._means <= self._config.high)
