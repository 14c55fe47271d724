"""A plugin of pytest that fails a test which starts a process: ``pytest --no-processes``, as ``make unit`` does."""

from __future__ import annotations

import multiprocessing.process
import sys
from typing import Any, NoReturn

import pytest

STARTS_A_PROCESS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"})


class NoProcesses:
    """Fails a test that starts a process."""

    def __init__(self) -> None:
        self._test = ""
        sys.addaudithook(self._on_event)
        multiprocessing.process.BaseProcess.start = self._refuse  # type: ignore[method-assign]

    def _on_event(self, event: str, _: tuple[Any, ...]) -> None:
        if self._test and event in STARTS_A_PROCESS:
            self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        pytest.fail(f"{self._test} starts a process; mark it with pytest.mark.processes, and `make unit` leaves it out")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = ""
