"""The content that ``verl-like serve`` shows: built again when files have changed, and only as far as they have."""

from __future__ import annotations

import gzip
import json
import shutil
import threading
from pathlib import Path

import pytest

from benchmarks._made_run import write_run
from verl_like.report import refreshed, samples
from verl_like.report.content import content_of
from verl_like.report.refreshed import EVERY_S, RefreshedContent
from verl_like.report.run_files import RunFiles
from verl_like.runs.lock import FolderLock


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "made", steps=6, samples=8)
    return tmp_path / "made"


def add_step(run: Path, step: int) -> None:
    with (run / "metrics.jsonl").open("a") as rows:
        rows.write(json.dumps({"step": step, "reward/score_mean": 0.5}) + "\n")
    shutil.copy(run / "samples/step_1.jsonl", run / f"samples/step_{step}.jsonl")


def later(clock: Clock) -> None:
    clock.now += EVERY_S


def test_the_content_is_that_of_a_report(run: Path) -> None:
    found, expected = RefreshedContent([run]).current(), content_of([RunFiles(run)])
    head = json.loads(found.head)
    assert found.shards == expected.shards
    assert head.pop("live") == {"version": found.version, "every_s": EVERY_S}
    head["made_unix_s"] = expected.head["made_unix_s"]
    assert head == {name: value for name, value in json.loads(json.dumps(expected.head)).items() if name != "live"}
    assert found.version.encode() in found.page and b"shard-" not in found.page.partition(b"<script>")[0]


def test_nothing_is_read_again_before_it_is_due_or_without_a_change(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    content = RefreshedContent([run], clock=clock)
    first = content.current()
    add_step(run, 7)
    assert content.current() is first, "not due"
    later(clock)
    second = content.current()
    assert second.version != first.version and json.loads(second.head)["runs"][0]["step"] == 7
    later(clock)
    monkeypatch.setattr(refreshed, "run_content", lambda *_, **__: pytest.fail("no file has changed"))
    assert content.current() is second


def test_only_samples_files_that_have_changed_are_read_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, read = Clock(), list[str]()
    pack = refreshed.packed_file
    monkeypatch.setattr(refreshed, "packed_file", lambda file: (read.append(file.path.name), pack(file))[1])
    content = RefreshedContent([run], clock=clock)
    content.current()
    assert len(read) == 6
    add_step(run, 7)
    (run / "samples/step_2.jsonl").write_text("{}\n")
    later(clock)
    content.current()
    assert read[6:] == ["step_2.jsonl", "step_7.jsonl"]


def test_rows_that_a_continued_run_drops_disappear(run: Path) -> None:
    clock = Clock()
    content = RefreshedContent([run], clock=clock)
    content.current()
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(rows[:3]))
    later(clock)
    found = content.current()
    curves = json.loads(gzip.decompress(found.shards["r0-curves"]))["series"]
    assert json.loads(found.head)["runs"][0]["step"] == 3 and curves["reward/score_mean"][0] == [1, 2, 3]


def test_the_status_follows_the_lock_although_no_other_file_changes(run: Path) -> None:
    clock = Clock()
    content = RefreshedContent([run], clock=clock)
    with FolderLock(run):
        assert json.loads(content.current().head)["runs"][0]["status"] == "running"
    later(clock)
    assert json.loads(content.current().head)["runs"][0]["status"] == "stopped"


def test_content_that_is_built_again_without_a_change_keeps_its_version(run: Path) -> None:
    clock = Clock()
    content = RefreshedContent([run], clock=clock)
    first = content.current()
    (run / "summary.json").write_text("{}")
    later(clock)
    second = content.current()
    assert second is not first and second.version == first.version


def test_a_folder_that_is_removed_keeps_its_last_state_and_says_so(run: Path) -> None:
    clock = Clock()
    content = RefreshedContent([run], clock=clock)
    first = content.current()
    run.rename(run.with_name("away"))
    for _ in range(2):
        later(clock)
        found = content.current()
        [note] = json.loads(found.head)["notes"]
        assert note.startswith("The files of this run cannot be read (") and found.shards == first.shards
    run.with_name("away").rename(run)
    later(clock)
    assert content.current().version == first.version


def test_while_one_request_builds_the_others_get_the_last_content(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, is_building, may_end = Clock(), threading.Event(), threading.Event()
    content = RefreshedContent([run], clock=clock)
    first = content.current()
    build = refreshed.run_content

    def slow(*arguments: object, **options: object) -> object:
        is_building.set()
        assert may_end.wait(60)
        return build(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(refreshed, "run_content", slow)
    add_step(run, 7)
    later(clock)
    builder = threading.Thread(target=content.current)
    builder.start()
    assert is_building.wait(60)
    assert content.current() is first
    may_end.set()
    builder.join(60)
    assert content.current() is not first


def test_after_a_long_build_the_next_one_waits_longer(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    content = RefreshedContent([run], clock=clock)
    build = refreshed.run_content

    def slow(*arguments: object, **options: object) -> object:
        clock.now += 4
        return build(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(refreshed, "run_content", slow)
    first = content.current()
    add_step(run, 7)
    clock.now += 19  # a fifth of a core is 20 s for a build of 4 s
    assert content.current() is first
    clock.now += 1
    assert content.current() is not first


def test_files_that_are_left_out_are_counted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_READ_BYTES", (run / "samples/step_1.jsonl").stat().st_size * 2.5)
    [note] = json.loads(RefreshedContent([run]).current().head)["notes"]
    assert note.startswith("The samples of 4 of 6 files are left out")
