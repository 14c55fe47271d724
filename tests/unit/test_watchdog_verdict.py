"""The watchdog's report on an engine that waits for environments, compared with one that hangs."""

from __future__ import annotations

import pytest

from verl_like.telemetry.heartbeat import Reading
from verl_like.watchdog.verdict import sentence, verdict_on
from verl_like.watchdog.watch import Watched

DRIVER, WORKER = 1, 2


def watched(pid: int, who: str, waits_for: str) -> Watched:
    reading = Reading(pid, who, "rollout", 0.0, 0.0, 1, waits_for, {})
    return Watched(who, pid, 0.0, reading, moved_at=0.0)


@pytest.mark.parametrize("waits_for", ["64 episodes (environment)", ""])
def test_an_engine_that_waits_for_environments_is_not_reported_as_hung(waits_for: str) -> None:
    processes = {
        DRIVER: watched(DRIVER, "the driver", "worker rank 0"),
        WORKER: watched(WORKER, "worker rank 0", waits_for),
    }
    verdict = verdict_on([DRIVER], processes, {})
    text = sentence(verdict, {DRIVER: 60.0}, {}, now=100.0)
    if waits_for:
        assert not verdict.silent
        assert "worker rank 0 in 'rollout' for 64 episodes (environment)" in text and "hangs in stage" not in text
    else:
        assert [each.pid for each in verdict.silent] == [WORKER]
        assert "worker rank 0 (pid 2" in text and "hangs in stage 'rollout'" in text
