"""Limits on reading configurations keep within those that the process has already."""

from __future__ import annotations

import resource
from unittest.mock import patch

from verl_like.config.reading_limits import bounded

INFINITE = resource.RLIM_INFINITY


def test_reading_never_raises_a_limit_on_memory_that_the_process_has() -> None:
    """Also where only its soft limit is finite, as ``ulimit -Sv`` leaves it."""
    set_limits: list[tuple[int, int]] = []
    with (
        patch.object(resource, "getrlimit", lambda which: (1_000_000, INFINITE)),
        patch.object(resource, "setrlimit", lambda which, limits: set_limits.append(limits)),
        bounded("x", remedy=""),
    ):
        pass
    assert set_limits == [(1_000_000, INFINITE), (1_000_000, INFINITE)]
