"""A plugin of pytest that fails a test which starts a process: ``pytest --no-processes``, as ``make unit`` does.

Imports may start some: vLLM's asks commands of the system for the processor.
"""

from __future__ import annotations

import multiprocessing.process
import sys
from types import FrameType
from typing import Any, NoReturn

import pytest

STARTS_A_PROCESS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"})


class NoProcesses:
    """Fails a test that starts a process, in the test or in a fixture that is set up for it."""

    def __init__(self) -> None:
        self._test, self._has_started = "", False
        sys.addaudithook(self._on_event)
        multiprocessing.process.BaseProcess.start = self._refuse  # type: ignore[method-assign]

    def _on_event(self, event: str, _: tuple[Any, ...]) -> None:
        if self._test and event in STARTS_A_PROCESS and not _is_import(sys._getframe()):
            self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        self._has_started = True
        pytest.fail(f"{self._test} starts a process; mark it with pytest.mark.processes, and `make unit` leaves it out")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._test, self._has_started = item.nodeid, False
        try:
            return (yield)
        finally:
            self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Any:
        result = yield
        if self._has_started:  # in a thread, or where the test catches everything
            self._refuse()
        return result


def _is_import(frame: FrameType | None) -> bool:
    """Return whether the code of a module runs, as it is imported, on this stack."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
