"""The kept durations of tests, and the order in which processes take files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tools import durations
from tests.tools.durations import (
    COLLECTED,
    DURATIONS,
    Recorder,
    by_file,
    longest_first,
    make_seconds,
    merged,
    read,
    removed,
)

UNIT = tuple(f"tests/{name}/" for name in ("unit", "environments", "graders", "migrate", "spec"))


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


def session(**of_the_config: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(stash=pytest.Stash(), args=["tests"], **of_the_config))


def test_tests_that_a_collected_file_no_longer_holds_are_removed() -> None:
    kept = ["a.py::renamed", "a.py::deselected", "not_collected.py::test"]
    assert removed(kept, ["a.py::new_name", "a.py::deselected"]) == {"a.py::renamed"}


@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("args", [["tests"], ["tests/unit/test_durations.py::x"]])
def test_the_recorder_removes_what_was_not_collected_with_its_whole_file(
    tmp_path: Path, args: list[str], is_parallel: bool
) -> None:
    path, name = tmp_path / "durations.json", "tests/unit/test_durations.py"
    path.write_text(json.dumps({f"{name}::old_name": 5.0}))
    collecting = session(workeroutput={}) if is_parallel else session()
    collecting.config.args = args
    collecting.config.stash[COLLECTED] = [SimpleNamespace(nodeid=f"{name}::x")]
    recorder = Recorder(path)
    recorder.pytest_collection_finish(collecting)
    recorder.pytest_sessionfinish(collecting)
    if is_parallel:
        first = Recorder(path)
        first.pytest_testnodedown(collecting.config, None)
        first.pytest_testnodedown(SimpleNamespace(), "crashed")
        first.pytest_sessionfinish(session())
    assert read(path) == ({} if args == ["tests"] else {f"{name}::old_name": 5.0})


def test_the_recorder_adds_set_up_and_call_of_a_test(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "durations.json")
    for when, duration in (("setup", 2.0), ("call", 0.5), ("teardown", 0.25)):
        report = pytest.TestReport(
            "tests/unit/test_durations.py::x", ("", 0, ""), {}, "passed", None, when, (), duration
        )
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish(session())
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


class Marked:
    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self._markers = nodeid, markers

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._markers else None


def test_tests_that_run_alone_count_in_full_and_others_are_shared_by_the_processes() -> None:
    items = [Marked("a", "alone"), Marked("b", "slow"), Marked("c")]
    assert make_seconds(items, {"a": 5.0, "b": 6.0, "c": 2.0}) == 5.0 + (6.0 + 2.0) / 2


TARGETS = {
    "make test": (("slow", "nightly", "gpu"), 10 * 60),  # of a quarter of an hour; mypy and imports take the rest
    "make test-all": (("gpu",), 48 * 60),  # of an hour, as recorded on an Intel Xeon that is slower than Zen 4
    "make unit": (("slow", "nightly", "processes", "alone", "gpu"), 165),  # of three minutes; imports take the rest
    ".ci/run": (("nightly", "gpu"), 30 * 60),  # of 90 minutes, on machines that may be half as fast
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_takes_no_longer_than_its_help_says(request: pytest.FixtureRequest, target: str) -> None:
    """By the kept seconds of the tests that pytest has collected, which are all tests in ``make test``."""
    left_out, max_s = TARGETS[target]

    def has(item: pytest.Item, *markers: str) -> bool:
        return any(item.get_closest_marker(marker) for marker in markers)

    def is_run(item: pytest.Item) -> bool:
        if target == "make test-all" and not has(item, "slow", "nightly"):
            return False
        return not has(item, *left_out) and (target != "make unit" or item.nodeid.startswith(UNIT))

    seconds = read()
    items = [item for item in request.config.stash[COLLECTED] if is_run(item)]
    longest = sorted((item.nodeid for item in items if item.nodeid in seconds), key=lambda test: -seconds[test])[:20]
    taken = make_seconds(items, seconds)
    assert taken <= max_s, "\n".join(
        [
            f"{target} takes {taken:.0f} s; mark tests `slow` or `nightly`. Its longest:",
            *(f"{seconds[test]} {test}" for test in longest),
        ]
    )
