"""The controller of the KL penalty's coefficient. Nothing here imports torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# Equation 3 of 1909.08593: the relative error is clipped to this value.
MAX_KL_ERROR = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveKl:
    """A coefficient that steers the measured KL to a target (1909.08593, section 2.2). ``coef`` is its complete state.

    Args:
        coef: the current weight of the KL penalty; 0 stays 0.
        target: the target KL, above 0, in the unit of ``measured_kl`` in :meth:`updated`.
        horizon: number of responses over which the coefficient reacts; more than a fifth of the responses of a step.
    """

    coef: float
    target: float
    horizon: float

    def updated(self, measured_kl: float, *, num_responses: int) -> AdaptiveKl:
        """Return the controller after a step: coef * (1 + clip(measured / target - 1, -0.2, 0.2) * num_responses /
        horizon).

        Checks before the run refuse a step so large, relative to the horizon, that the coefficient could become 0 or
        negative.
        """
        assert math.isfinite(measured_kl), f"the measured KL is {measured_kl}"
        assert MAX_KL_ERROR * num_responses < self.horizon, (
            f"kl_horizon is {self.horizon:g}, but a step has {num_responses} responses"
        )
        error = min(max(measured_kl / self.target - 1, -MAX_KL_ERROR), MAX_KL_ERROR)
        return replace(self, coef=self.coef * (1 + error * num_responses / self.horizon))
