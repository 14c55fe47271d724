"""A plugin of pytest that starts no test after a while: ``pytest --max-minutes 30``, as ``.ci/run`` does.

What is left is skipped, and the summary says so.
"""

from __future__ import annotations

import time

import pytest


class TimeLimit:
    """Skips every test that has not started in time."""

    def __init__(self, minutes: float) -> None:
        self._minutes, self._end = minutes, time.monotonic() + 60 * minutes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._end:
            pytest.skip(f"the time was over before it started (--max-minutes {self._minutes:g})")
