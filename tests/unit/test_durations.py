"""The kept durations of tests, and the order in which processes take files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tools import durations
from tests.tools.durations import DURATIONS, Recorder, by_file, longest_first, merged, read


def test_files_come_longest_first_within_their_folder() -> None:
    tests = [
        "tests/e2e/test_a.py::short",
        "tests/unit/test_b.py::one",
        "tests/unit/test_b.py::two",
        "tests/unit/test_c.py::unknown",
        "tests/unit/test_d.py::long",
    ]
    seconds = {"tests/e2e/test_a.py::short": 1.0, "tests/unit/test_b.py::two": 2.0, "tests/unit/test_d.py::long": 9.0}
    assert [tests[place] for place in longest_first(tests, seconds)] == [
        "tests/e2e/test_a.py::short",
        "tests/unit/test_d.py::long",
        "tests/unit/test_b.py::one",
        "tests/unit/test_b.py::two",
        "tests/unit/test_c.py::unknown",
    ]


def test_tests_that_ran_replace_their_durations_and_those_of_removed_files_go() -> None:
    kept = {"a.py::ran": 5.0, "a.py::fast_now": 5.0, "a.py::did_not_run": 5.0, "gone.py::test": 5.0}
    measured = {"a.py::ran": 2.04, "a.py::fast_now": 0.2, "b.py::new": 3.0}
    expected = {"a.py::did_not_run": 5.0, "a.py::ran": 2.0, "b.py::new": 3.0}
    assert merged(kept, measured, files=["a.py", "b.py"]) == expected
    assert by_file(expected) == {"a.py": 7.0, "b.py": 3.0}


def test_the_recorder_adds_set_up_and_call_of_a_test(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "durations.json")
    for when, duration in (("setup", 2.0), ("call", 0.5), ("teardown", 0.25)):
        report = pytest.TestReport(
            "tests/unit/test_durations.py::x", ("", 0, ""), {}, "passed", None, when, (), duration
        )
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert read(tmp_path / "durations.json") == {"tests/unit/test_durations.py::x": 2.8}


def test_the_kept_durations_are_sorted_and_long_enough_to_matter() -> None:
    kept = read(DURATIONS)
    assert kept and kept == merged(kept, {}, files={test.partition("::")[0] for test in kept})
    assert DURATIONS.read_text() == json.dumps(kept, indent=1) + "\n"


def test_only_processes_of_xdist_take_long_files_first(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"tests/test_long.py::test_it": 9.0}
    monkeypatch.setattr(durations, "read", lambda: kept)
    first, long = SimpleNamespace(nodeid="tests/test_first.py::test_it"), SimpleNamespace(nodeid=[*kept][0])
    of_xdist, alone = [first, long], [first, long]
    durations.order(SimpleNamespace(workerinput={}), of_xdist)
    durations.order(SimpleNamespace(), alone)
    assert (of_xdist, alone) == ([long, first], [first, long])
