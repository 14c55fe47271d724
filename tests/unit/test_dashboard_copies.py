"""A run that is watched from its copy in a remote folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks._made_run import write_run
from verl_like.cli import main
from verl_like.dashboard import copies
from verl_like.dashboard.command import WatchedRun, _newer
from verl_like.dashboard.copies import RemoteCopy, UnreadableCopy
from verl_like.dashboard.view import NOT_FINISHED
from verl_like.remote import RemoteFolder
from verl_like.runs.remote_run import COPIED


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A remote folder with the copy of a run."""
    folder = tmp_path / "store/runs/made"
    write_run(folder, steps=5, samples=8)
    for start in (2, 10):
        (folder / f"logs/{start}").mkdir(parents=True)
        (folder / f"logs/{start}/driver.log").write_text(f"2026-11-27 22:13:21,912 WARNING start {start}\n")
    (folder / "checkpoints/step_5").mkdir(parents=True)
    (folder / "checkpoints/step_5/weights").write_text("large")
    return folder


def url(store: Path) -> str:
    return f"file://{store}"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_only_what_a_dashboard_reads_is_copied_and_removed_at_the_end(store: Path) -> None:
    with RemoteCopy(url(store)) as copy:
        copy.refresh()
        assert files(copy.folder) == {"config.yaml", "metrics.jsonl", "logs/10/driver.log"}
        assert copy.folder.name == "made"
    assert not copy.folder.exists()


def test_only_what_has_changed_is_copied_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[set[str]] = []
    get = RemoteFolder.get

    def recorded(self: RemoteFolder, names: dict[str, Path], check: Callable[[], None]) -> None:
        fetched.append(set(names))
        get(self, names, check)

    monkeypatch.setattr(RemoteFolder, "get", recorded)
    with RemoteCopy(url(store)) as copy:
        copy.refresh()
        copy.refresh()
        text = (store / "metrics.jsonl").read_text()
        (store / "metrics.jsonl").write_text(text + '{"step": 6, "reward/score_mean": 0.5}\n')
        copy.refresh()
        (store / "summary.json").write_text('{"status": "finished"}')
        states = {"summary.json": [22, 1], "metrics.jsonl": [1, 1]}
        (store / COPIED).write_text(json.dumps(states))
        copy.refresh()
        (store / COPIED).write_text(json.dumps(states | {"metrics.jsonl": [1, 2]}))  # as long as before, and newer
        copy.refresh()
    assert fetched[1:] == [set(), {"metrics.jsonl"}, {"summary.json", "metrics.jsonl"}, {"metrics.jsonl"}]


def test_a_copy_is_followed_and_does_not_claim_that_its_run_has_ended(store: Path) -> None:
    with WatchedRun(url(store)) as run:
        view = run.view()
        assert (view.name, view.step, view.status) == ("made", 5, NOT_FINISHED)
        assert view.warnings == ["22:13:21 WARNING start 10"]
        with (store / "metrics.jsonl").open("a") as file:
            file.write('{"step": 6, "reward/score_mean": 0.5}\n')
        (store / "summary.json").write_text('{"status": "finished", "steps": 6}')
        view = run.view()
        assert (view.step, view.status) == (6, "finished")


def test_a_store_that_fails_meanwhile_is_reported_in_the_picture(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WatchedRun(url(store)) as run:
        view = run.view()

        def fail(*_: object) -> None:
            raise PermissionError("token\x1b[31m expired")

        monkeypatch.setattr(RemoteFolder, "files", fail)
        newer = _newer(run, view)
    assert newer.step == 5
    assert newer.problem == rf"{url(store)} cannot be read (PermissionError: token\x1b[31m expired)"


def test_a_store_that_does_not_answer_is_given_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    released = threading.Event()
    monkeypatch.setattr(copies, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(RemoteFolder, "files", lambda *_: released.wait(60))
    with RemoteCopy(url(store)) as copy:
        with pytest.raises(UnreadableCopy, match=r"did not answer within 0.1 s"):
            copy.refresh()
    released.set()


def test_a_remote_folder_without_a_run_is_refused(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(store)
    assert main(["watch", url(store)]) == 2
    expected = (
        f"error: {url(store)} holds no copy of a run: it has neither config.yaml nor metrics.jsonl. "
        "Give trainer.remote_dir with the run's name, e.g. s3://bucket/runs/grpo-seed1.\n"
    )
    assert capsys.readouterr().err == expected


def test_a_store_that_cannot_be_read_at_first_is_refused(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError("no credentials")

    monkeypatch.setattr(RemoteFolder, "files", fail)
    assert main(["watch", url(store)]) == 2
    assert capsys.readouterr().err == (
        f"error: {url(store)} cannot be read (PermissionError: no credentials). Check the address, the store's "
        "credentials and the network.\n"
    )


def test_a_url_of_no_known_store_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "nonsense://bucket/run"]) == 2
    assert "RUN is nonsense://bucket/run, but fsspec does not support nonsense://." in capsys.readouterr().err
