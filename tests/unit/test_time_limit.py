"""``pytest --max-minutes`` skips what has not started in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import time_limit
from tests.tools.time_limit import TimeLimit

ROOT = Path(__file__).parents[2]


def test_a_test_starts_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: now[0])
    limit = TimeLimit(0.5)
    now[0] = 130.0
    limit.pytest_runtest_setup()
    now[0] = 130.1
    with pytest.raises(pytest.skip.Exception, match=r"before it started \(--max-minutes 0\.5\)"):
        limit.pytest_runtest_setup()


@pytest.mark.processes
def test_the_summary_names_what_was_not_started() -> None:
    this = f"{Path(__file__).relative_to(ROOT)}::{test_a_test_starts_until_the_time_is_over.__name__}"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--max-minutes", "0", this],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 skipped in" in ran.stdout and "the time was over before it started" in ran.stdout, ran.stdout + ran.stderr
