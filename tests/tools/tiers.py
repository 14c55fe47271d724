"""Which tests run when, and in which order: a plugin of pytest that ``pyproject.toml`` names.

``make unit`` runs the tests that start no process, ``make test`` all but those marked ``slow``, ``make test-all`` these
too. The files of a folder run longest first, so that no long file is left over when all others are done:
``tests/durations.json`` has the seconds of each file, as ``--record-durations`` wrote them.
"""

from __future__ import annotations

import json
import multiprocessing.process
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NoReturn

import pytest

DURATIONS = Path(__file__).parents[1] / "durations.json"
STARTS_A_PROCESS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--no-processes", action="store_true", help="fail a test that starts a process")
    group.addoption("--record-durations", metavar="FILE", help="write the seconds of each test file as JSON")


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


class Durations:
    """Adds up the seconds of each test file, over all processes that run tests."""

    def __init__(self, file: Path) -> None:
        self._file, self._seconds = file, defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        seconds = read_durations(self._file) | self._seconds
        rounded = {name: round(value, 1) for name, value in sorted(seconds.items())}
        self._file.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")


def read_durations(file: Path) -> dict[str, float]:
    """Return the seconds of each test file; of a missing file, nothing."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-processes"):
        config.pluginmanager.register(NoProcesses())
    file = config.getoption("--record-durations")
    if file is not None and not hasattr(config, "workerinput"):  # a worker of pytest-xdist reports to the first process
        config.pluginmanager.register(Durations(Path(file)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = longest_first(items, read_durations(DURATIONS))


def longest_first(items: list[pytest.Item], seconds: dict[str, float]) -> list[pytest.Item]:
    """Sort the files of each folder by their seconds; folders, and the tests of a file, keep their order.

    A file without a duration comes first in its folder, since it may be long.
    """
    folders = {folder: number for number, folder in enumerate(dict.fromkeys(item.path.parent for item in items))}

    def key(item: pytest.Item) -> tuple[int, float, str]:
        file = item.nodeid.partition("::")[0]
        return folders[item.path.parent], -seconds.get(file, float("inf")), file

    return sorted(items, key=key)
