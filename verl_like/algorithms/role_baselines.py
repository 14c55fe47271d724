"""Baselines of roles (RAE; SPIRAL, 2506.24119). Nothing here imports torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def role_means(roles: Sequence[str], returns: Sequence[float]) -> dict[str, float]:
    """Return the mean return of each role in a step.

    The sum is rounded once, so the order of the responses cannot change a bit of it.

    Args:
        roles: role of each response.
        returns: return of each response.
    """
    found: dict[str, list[float]] = {}
    for role, value in zip(roles, returns, strict=True):
        found.setdefault(role, []).append(float(value))
    return {role: math.fsum(found[role]) / len(found[role]) for role in sorted(found)}


def moved_baselines(baselines: Mapping[str, float], means: Mapping[str, float], *, decay: float) -> dict[str, float]:
    """Return the baselines after a step: b = decay * b + (1 - decay) * mean, for each role with a response in it.

    A baseline begins at 0, as in the paper, which moves it after every game. Here it moves once in a step.

    Args:
        baselines: of all roles before the step.
        means: as from :func:`role_means`.
    """
    moved = {role: decay * baselines.get(role, 0.0) + (1 - decay) * mean for role, mean in means.items()}
    return {**baselines, **moved}
