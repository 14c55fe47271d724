"""Seconds of the tests that take long, kept in ``tests/durations.json``: ``python -m tests.tools.durations``.

``pytest --record-durations`` updates the file by the tests that it runs and removes tests that no longer exist. ``make
test`` reads the file: each of its processes takes the next file, so the longest files of a folder come first and the
short ones fill the end. ``tests/unit/test_durations.py`` sums up the seconds of each target.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DURATIONS = ROOT / "tests/durations.json"
SHORTEST_S = 1.0  # a test below it is not kept
SHORT_S = 0.022  # what a test that is not kept takes on average, as measured over `make unit` on Zen 4
NUM_SHOWN = 20
COLLECTED = pytest.StashKey[list[pytest.Item]]()  # with those that -m or -k deselect

Seconds = dict[str, float]  # by the id of a test


def read(path: Path = DURATIONS) -> Seconds:
    """Read the seconds of each test that takes long; nothing where there is no file."""
    found: Seconds = json.loads(path.read_text()) if path.exists() else {}
    return found


def file_of(test: str) -> str:
    return test.partition("::")[0]


def by_file(seconds: Mapping[str, float]) -> Seconds:
    """Sum up the seconds of each file."""
    sums: Seconds = defaultdict(float)
    for test, duration in seconds.items():
        sums[file_of(test)] += duration
    return sums


def merged(kept: Mapping[str, float], measured: Mapping[str, float], *, files: Iterable[str]) -> Seconds:
    """Return the seconds to keep: the measured ones, and earlier ones of tests that did not run and whose file is left.

    Args:
        files: those that exist.
    """
    left = set(files)
    both = {**{test: duration for test, duration in kept.items() if file_of(test) in left}, **measured}
    return {test: round(both[test], 1) for test in sorted(both) if both[test] >= SHORTEST_S}


def removed(kept: Iterable[str], collected: Iterable[str]) -> set[str]:
    """Return the kept tests that no longer exist: their whole file was collected, and they were not in it."""
    found = set(collected)
    files = set(map(file_of, found))
    return {test for test in kept if file_of(test) in files and test not in found}


def make_seconds(items: Iterable[pytest.Item], seconds: Mapping[str, float], *, num_processes: int = 2) -> float:
    """Estimate how long a target runs these tests: in parallel, and then those marked ``alone`` one by one.

    Collecting all tests takes about 25 s more in the first phase, and those of the second one a few seconds.
    """
    sums = {True: 0.0, False: 0.0}
    for item in items:
        sums[item.get_closest_marker("alone") is not None] += seconds.get(item.nodeid, SHORT_S)
    return sums[True] + sums[False] / num_processes


def longest_first(tests: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """Return the positions of the tests in the order to run them in.

    Folders keep their order, because tests of one share what it starts; files of a folder come longest first; tests of
    a file keep their order.
    """
    sums = by_file(seconds)
    folders = {folder: number for number, folder in enumerate(dict.fromkeys(map(_folder_of, tests)))}
    files = {file: number for number, file in enumerate(dict.fromkeys(map(file_of, tests)))}

    def place(position: int) -> tuple[int, float, int]:
        file = file_of(tests[position])
        return folders[_folder_of(tests[position])], -sums.get(file, 0.0), files[file]

    return sorted(range(len(tests)), key=place)


def _folder_of(test: str) -> str:
    return file_of(test).rpartition("/")[0]


class Recorder:
    """A plugin of pytest that writes the seconds of the tests of this session.

    Processes of pytest-xdist collect the tests and report to the first process which ones no longer exist.
    """

    def __init__(self, path: Path = DURATIONS) -> None:
        self._path, self._measured = path, defaultdict[str, float](float)
        self._removed = set[str]()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if COLLECTED in session.config.stash and not any("::" in word for word in session.config.args):
            self._removed = removed(read(self._path), [item.nodeid for item in session.config.stash[COLLECTED]])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error is None:
            self._removed.update(node.workeroutput["removed"])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._measured[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["removed"] = sorted(self._removed)
            return
        files = [str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py")]
        kept = {test: duration for test, duration in read(self._path).items() if test not in self._removed}
        found = merged(kept, self._measured, files=files)
        self._path.write_text(json.dumps(found, indent=1) + "\n")


def order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the items of a process of pytest-xdist, which gives out files in this order; others stay as they are."""
    if not hasattr(config, "workerinput"):
        return
    chosen = longest_first([item.nodeid for item in items], read())
    items[:] = [items[position] for position in chosen]


def table(seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return the seconds of each folder and the longest files and tests."""
    files = by_file(seconds)
    folders: Seconds = defaultdict(float)
    for file, duration in files.items():
        folders[_folder_of(file)] += duration
    return {
        name: {
            key: round(duration, 1) for key, duration in sorted(found.items(), key=lambda item: -item[1])[:NUM_SHOWN]
        }
        for name, found in (("folders", folders), ("files", files), ("tests", seconds))
    }


if __name__ == "__main__":
    print(json.dumps(table(read()), indent=2))
