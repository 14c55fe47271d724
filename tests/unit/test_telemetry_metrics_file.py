"""A metrics file that is read while a run writes it: rows are added, left unfinished, and dropped by a continuation."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from verl_like.telemetry.metrics_file import MetricsFile, row_of
from verl_like.telemetry.trackers import JsonlTracker, read_metrics

DEEP, HUGE = "[" * 100_000, f'{{"step": 1, "a": 1{"0" * 400}}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_does_not_exist_yet_is_empty_and_read_once_it_does(path: Path) -> None:
    file = MetricsFile(path)
    assert not file.read() and file.series == {}
    append(path, '{"step": 1, "a": 2}\n')
    assert file.read() and file.series == {"a": {1: 2.0}}
    assert not file.read()


def test_a_line_without_an_end_is_read_when_it_has_one(path: Path) -> None:
    append(path, '{"step": 1, "a": 1}\n{"step": 2, ')
    file = MetricsFile(path)
    assert file.read() and list(file.series["a"]) == [1]
    append(path, '"a": 2}')
    assert not file.read()
    append(path, "\n")
    assert file.read() and file.series["a"] == {1: 1.0, 2: 2.0} and file.num_unreadable == 0


def test_rows_that_a_continued_run_drops_disappear(path: Path) -> None:
    run = JsonlTracker(path)
    for step in range(1, 8):
        run.log(step, {"a": float(step)})
    file = MetricsFile(path)
    file.read()
    run.truncate_after(4)
    run.log(5, {"a": 50.0})
    assert file.read()
    assert file.series["a"] == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 5: 50.0} == read_metrics(path)["a"]
    run.close()


def test_a_file_that_was_replaced_by_a_longer_one_is_read_again(path: Path) -> None:
    append(path, '{"step": 1, "a": 1}\n')
    file = MetricsFile(path)
    file.read()
    path.write_text('{"step": 1, "a": 9}\n{"step": 2, "a": 8}\n')
    assert file.read() and file.series["a"] == {1: 9.0, 2: 8.0}


def test_a_file_that_was_removed_has_no_rows(path: Path) -> None:
    append(path, '{"step": 1, "a": 1}\n')
    file = MetricsFile(path)
    file.read()
    path.unlink()
    assert file.read() and file.series == {}
    assert not file.read()


@pytest.mark.parametrize("cuts", [1, 7, 64, 1000])
def test_whatever_the_pieces_in_which_it_arrives_the_rows_are_those_of_the_whole(path: Path, cuts: int) -> None:
    rows = [{"step": step % 17, "a": step, f"b{step % 3}": None if step % 5 else 0.5} for step in range(60)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    file = MetricsFile(path)
    for start in range(0, len(text), cuts):
        append(path, text[start : start + cuts])
        file.read()
    expected = read_metrics(path)
    assert {name: list(points) for name, points in file.series.items()} == {
        name: sorted(points) for name, points in expected.items()
    }
    assert file.series["a"] == {step: max(n for n in range(60) if n % 17 == step) for step in range(17)}
    assert math.isnan(file.series["b1"][1])


@pytest.mark.parametrize(
    "line",
    ["", "{", "[1]", '{"a": 1}', '{"step": "1"}', '{"step": 1, "a": "x"}', '{"step": 1, "a": {}}', DEEP, HUGE],
    ids=lambda line: line[:20],
)
def test_a_line_that_is_no_row_of_numbers_is_skipped_and_counted(path: Path, line: str) -> None:
    assert row_of(line) is None
    append(path, f'{line}\n{{"step": 1, "a": 1}}\n')
    file = MetricsFile(path)
    assert file.read() and file.series == {"a": {1: 1.0}} and file.num_unreadable == 1
