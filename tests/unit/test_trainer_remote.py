"""Runs in remote folders: what is whole there can be gone on from, and no store stops, delays or loses a run."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from tests.unit._savers import save
from verl_like.call_threads import CallThreads
from verl_like.checks.manifest import damage
from verl_like.config.compose import as_yaml
from verl_like.config.schema import Config, TrainerConfig
from verl_like.context import current
from verl_like.remote import BATCH_FILES, RemoteFolder, unreadable_kind
from verl_like.runs import restore as restore_module
from verl_like.runs import upload as upload_module
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.folder import RunFolder
from verl_like.runs.lock import FolderLock
from verl_like.runs.remote_run import RemoteRun
from verl_like.runs.restore import restore
from verl_like.runs.upload import Upload, uploaded


def nothing() -> None:
    """Check nothing, so that the copy continues."""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server that speaks S3."""
    if not all(importlib.util.find_spec(name) for name in ("s3fs", "moto")):
        pytest.skip("needs `pip install s3fs 'moto[server]'`, which no lock holds")
    from moto.server import ThreadedMotoServer

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "id")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket"
    server.stop()


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the folder of all runs, in each kind of store."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    return f"file://{tmp_path}/store" if request.param == "file" else f"memory://{tmp_path.name}"


@pytest.fixture
def file_store(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


class Run:
    """A run on one machine, as far as its folder goes."""

    def __init__(self, machine: Path, url: str, **trainer: object) -> None:
        settings = {"output_dir": str(machine), "experiment_name": "run", "remote_dir": url, "remote_timeout_s": 20.0}
        self.config = Config(trainer=TrainerConfig(**{**settings, **trainer}))  # type: ignore[arg-type]
        self.yaml = as_yaml(self.config)
        self.folder = RunFolder(self.config)
        self.checkpoints = Checkpoints(self.folder.checkpoints, max_checkpoints=2)

    def start(self, *, job: str = "train") -> None:
        restore(self.config, self.yaml, job=job)
        if job:
            self.folder.refuse_other(self.yaml, job=job, resume=self.config.trainer.resume)
            self.folder.claim(self.yaml, job=job)

    def step(self, step: int, *, is_best: bool = False) -> None:
        with self.folder.metrics.open("a") as file:
            file.write(f'{{"step": {step}}}\n')
        (self.folder.samples / f"step_{step}.jsonl").write_text(f"response of {step}\n")
        save(self.checkpoints, step, actor=f"weights of {step}", is_best=is_best)

    def remote(self) -> RemoteRun:
        return RemoteRun(self.config.trainer.remote_dir, self.folder, max_checkpoints=2)

    def files(self) -> dict[str, bytes]:
        """Everything that the run has, but for the lock and the settings of its machine."""
        return {
            path.relative_to(self.folder.path).as_posix(): path.read_bytes()
            for path in self.folder.path.rglob("*")
            if path.is_file() and path.name not in (".lock", "config.yaml")
        }


def started(machine: Path, url: str, *steps: int, best: int = 0) -> Run:
    run = Run(machine, url)
    run.start()
    for step in steps:
        run.step(step, is_best=step == best)
    return run


def test_a_fresh_machine_has_what_the_first_one_had_byte_for_byte(store: str, tmp_path: Path) -> None:
    first = started(tmp_path / "one", store, 1, 2, 3, best=1)
    first.remote().copy(nothing)
    second = Run(tmp_path / "two", store)
    second.start()
    assert second.files() == {name: at for name, at in first.files().items() if "step_2/" not in name}
    assert second.checkpoints.find("auto") == second.checkpoints.path(3) and damage(second.checkpoints.path(3)) is None
    assert second.checkpoints.best() == second.checkpoints.path(1).resolve()


def test_the_store_forgets_what_the_folder_forgets_and_keeps_the_best(store: str, tmp_path: Path) -> None:
    run = started(tmp_path / "one", store, 1, best=1)
    remote = run.remote()
    for step in (2, 3, 4, 5):
        remote.copy(nothing)
        run.step(step)
    remote.copy(nothing)
    assert run.checkpoints.steps() == [1, 4, 5] and remote.steps() == [1, 4, 5]
    run.step(6, is_best=True)
    remote.copy(nothing)
    assert remote.steps() == [5, 6], "the former best has lost its privilege there too"


def test_a_machine_that_has_restored_one_checkpoint_leaves_the_one_before_it_there(
    file_store: str, tmp_path: Path
) -> None:
    started(tmp_path / "one", file_store, 1, 2).remote().copy(nothing)
    second = started(tmp_path / "two", file_store)
    second.remote().copy(nothing)
    assert second.checkpoints.steps() == [2] and second.remote().steps() == [1, 2]
    second.step(3)
    second.remote().copy(nothing)
    assert second.remote().steps() == [2, 3]


def test_a_machine_without_the_best_checkpoint_does_not_have_it_forgotten(file_store: str, tmp_path: Path) -> None:
    first = started(tmp_path / "one", file_store, 1, 2, best=1)
    first.remote().copy(nothing)
    (tmp_path / "store/run/checkpoints/step_1/actor/weights").write_text("damaged")
    second = started(tmp_path / "two", file_store, 3)  # could not have the best one
    assert second.checkpoints.best() is None
    second.remote().copy(nothing)
    assert second.remote().steps() == [1, 2, 3]


class CutOff(Exception):
    pass


def cut_at(count: int) -> Callable[[], None]:
    """Looks that end what looks after so many."""
    left = iter(range(count))

    def checked() -> None:
        if next(left, None) is None:
            raise CutOff

    return checked


@pytest.mark.parametrize("best", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_whenever_a_restore_is_cut_off_the_next_start_has_all(file_store: str, tmp_path: Path, best: int) -> None:
    first = started(tmp_path / "one", file_store, 1, 2, 3, best=best)
    first.remote().copy(nothing)
    num_cuts = 0
    while True:
        second = Run(tmp_path / f"two-{num_cuts}", file_store)
        try:
            second.remote().restore(3, cut_at(num_cuts))
        except CutOff:
            num_cuts += 1
        else:
            break
        second.start()
        with second.checkpoints.written({"step": 4}, is_best=False):  # which sweeps what is left of the first try
            pass
        shutil.rmtree(second.checkpoints.path(4))
        assert second.files() == {name: at for name, at in first.files().items() if "step_2/" not in name}
        assert second.checkpoints.best() == second.checkpoints.path(best).resolve()
    assert num_cuts > 5, "it was cut off between files"


def test_whenever_a_copy_is_cut_off_what_looks_complete_is_complete_and_the_next_one_completes_it(
    tmp_path: Path,
) -> None:
    num_cuts = 0
    while True:
        store = f"file://{tmp_path}/store-{num_cuts}"
        run = started(tmp_path / f"one-{num_cuts}", store, 1, 2, best=1)
        run.remote().copy(nothing)
        run.step(3)
        run.step(4)
        try:
            run.remote().copy(cut_at(num_cuts))
        except CutOff:
            num_cuts += 1
        else:
            break
        other = Run(tmp_path / f"two-{num_cuts}", store)
        steps = other.remote().steps()
        assert 2 in steps or 4 in steps, "the newest that was whole is there until a newer one is"
        assert [other.remote()._fetch(step, nothing) for step in steps] == [None] * len(steps)
        run.remote().copy(nothing)
        assert run.remote().steps() == run.checkpoints.steps() == [1, 3, 4]
    assert num_cuts > 8, "it was cut off between files, manifests and removals"


def test_a_damaged_checkpoint_is_reported_and_an_older_one_restored(
    file_store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started(tmp_path / "one", file_store, 1, 2).remote().copy(nothing)
    weights = tmp_path / "store/run/checkpoints/step_2/actor/weights"
    weights.write_text("weightz of 2")
    second = Run(tmp_path / "two", file_store)
    second.start()
    assert second.checkpoints.steps() == [1]
    assert "holds a damaged step_2 (actor/weights has another checksum" in caplog.text
    (tmp_path / "store/run/checkpoints/step_1/trainer.json").unlink()
    with pytest.raises(ValueError, match=r"holds no intact checkpoint: step_2 \(.*\); step_1 \("):
        Run(tmp_path / "three", file_store).start()


def test_the_best_is_named_there_once_it_is_there(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, put = started(tmp_path / "one", file_store, 1, 2, best=1), RemoteRun._put_files

    def best_meanwhile(self: RemoteRun, checked: Callable[[], None]) -> None:
        if first.checkpoints.steps()[-1] == 2:
            first.step(3, is_best=True)
        put(self, checked)

    monkeypatch.setattr(RemoteRun, "_put_files", best_meanwhile)
    remote = first.remote()
    remote.copy(nothing)
    assert remote.steps() == [2] or remote.steps() == [1, 2]
    second = started(tmp_path / "two", file_store)
    assert second.checkpoints.steps()[-1] == 2
    remote.copy(nothing)
    second.start()
    assert second.checkpoints.best() == second.checkpoints.path(3).resolve()


def test_a_checkpoint_deleted_while_it_is_copied_is_reported(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, put = started(tmp_path / "one", file_store, 1), RemoteFolder.put

    def slow(self: RemoteFolder, files: Mapping[str, Path], *args: Any, **kwargs: Any) -> None:
        if any(name.startswith("checkpoints/") for name in files):
            for step in range(run.checkpoints.steps()[-1] + 1, run.checkpoints.steps()[-1] + 3):
                run.step(step)
        put(self, files, *args, **kwargs)

    monkeypatch.setattr(RemoteFolder, "put", slow)
    run.remote().copy(nothing)
    assert "step_1 was removed before its copy in" in caplog.text
    assert "Raise trainer.max_checkpoints or trainer.save_freq" in caplog.text


def test_an_abandoned_copy_removes_nothing_of_its_successors(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read, is_given_up = started(tmp_path / "one", file_store, 1), RemoteFolder.read, threading.Event()

    def overtaken(self: RemoteFolder, name: str) -> bytes | None:
        found = read(self, name)
        if not is_given_up.is_set():
            is_given_up.set()
            run.remote().copy(nothing)
        return found

    def checked() -> None:
        if is_given_up.is_set():
            raise CutOff

    monkeypatch.setattr(RemoteFolder, "read", overtaken)
    with pytest.raises(CutOff):
        run.remote().copy(checked)
    assert run.remote().steps() == [1]


def test_a_truncated_list_of_copied_files_is_written_again(file_store: str, tmp_path: Path) -> None:
    run = started(tmp_path / "one", file_store, 1)
    run.remote().copy(nothing)
    (tmp_path / "store/run/copied.json").write_text('{"metrics.js')
    run.step(2)
    run.remote().copy(nothing)
    assert run.remote().steps() == [1, 2]


@pytest.mark.parametrize("gone", ["", "config.yaml", "samples/step_1.jsonl", "checkpoints/step_1/actor/weights"])
@pytest.mark.parametrize("is_known", [True, False])
def test_files_that_vanish_from_the_store_are_copied_again_with_the_next_checkpoint(
    file_store: str, tmp_path: Path, gone: str, is_known: bool
) -> None:
    run = started(tmp_path / "one", file_store, 1, best=1)
    remote = run.remote()
    remote.copy(nothing)
    there = tmp_path / "store/run" / gone
    there.unlink() if gone else shutil.rmtree(there)
    run.step(2)
    (remote if is_known else run.remote()).copy(nothing)
    second = Run(tmp_path / "two", file_store)
    second.start()
    assert second.files() == run.files()


def test_a_part_of_config_yaml_in_the_store_is_put_again(
    file_store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = started(tmp_path / "one", file_store, 1)
    run.remote().copy(nothing)
    config = tmp_path / "store/run/config.yaml"
    for left in (config.read_bytes()[:40], None):
        config.write_bytes(left) if left else config.unlink()
        with pytest.raises(
            ValueError,
            match=r"store/run holds metrics, .* but its config.yaml, which identifies the run, is missing or damaged",
        ):
            Run(tmp_path / "two", file_store).start()
        run.start()
        assert f"the config.yaml in {file_store}/run is missing or incomplete" in caplog.text
        caplog.clear()
        run.remote().copy(nothing)
        assert config.read_bytes() == run.folder.config.read_bytes()
    config.unlink()
    other = Run(tmp_path / "one", file_store)
    other.yaml = other.yaml.replace("train_batch_size: 32", "train_batch_size: 64")
    with pytest.raises(ValueError, match=r"one/run is the folder of another run"):
        other.start()


def test_a_folder_older_than_a_store_without_config_yaml_is_refused(file_store: str, tmp_path: Path) -> None:
    first = started(tmp_path / "one", file_store, 1)
    first.remote().copy(nothing)
    second = started(tmp_path / "two", file_store, 2)
    second.remote().copy(nothing)
    (tmp_path / "store/run/config.yaml").unlink()
    with pytest.raises(ValueError, match=r"its config\.yaml, which identifies the run, is missing or damaged"):
        first.start()


def test_whenever_the_first_copy_is_cut_off_a_new_machine_can_start_again(tmp_path: Path) -> None:
    num_cuts = 0
    while True:
        store = f"file://{tmp_path}/store-{num_cuts}"
        run = started(tmp_path / f"one-{num_cuts}", store, 1)
        try:
            run.remote().copy(cut_at(num_cuts))
        except CutOff:
            Run(tmp_path / f"two-{num_cuts}", store).start()
            num_cuts += 1
        else:
            break
    assert num_cuts > 5, "it was cut off between files"


def test_evaluations_of_this_machine_stay_when_a_further_run_is_restored(file_store: str, tmp_path: Path) -> None:
    first = started(tmp_path / "one", file_store, 1)
    first.folder.eval.mkdir()
    (first.folder.eval / "metrics.jsonl").write_text("of the first\n")
    first.remote().copy(nothing)
    second = Run(tmp_path / "two", file_store)
    second.start(job="")
    with (second.folder.eval / "metrics.jsonl").open("a") as file:
        file.write("of the second\n")
    first.step(2)
    (first.folder.eval / "step_2.jsonl").write_text("response\n")
    first.remote().copy(nothing)
    second.start(job="")
    assert second.checkpoints.steps() == [1, 2]
    assert (second.folder.eval / "metrics.jsonl").read_text() == "of the first\nof the second\n"
    assert (second.folder.eval / "step_2.jsonl").exists()


@pytest.mark.parametrize(
    "last", ["checkpoints/step_2/trainer.json", "metrics.jsonl", "checkpoints/step_3/trainer.json"]
)
def test_an_abandoned_restore_replaces_nothing_of_the_run_that_continued(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    first = started(tmp_path / "one", file_store, 1)
    first.remote().copy(nothing)
    second, get, is_given_up = started(tmp_path / "two", file_store), RemoteFolder.get, threading.Event()
    first.step(2)
    first.step(3, is_best=last.startswith("checkpoints/step_3"))  # the last file of all is one of the best checkpoint
    first.remote().copy(nothing)

    def late(self: RemoteFolder, files: Mapping[str, Path], check: Callable[[], None]) -> None:
        if last not in files:
            get(self, files, check)
            return
        second.folder.metrics.write_text("of the run itself")
        with second.checkpoints.written({"step": 2, "by": "the run itself"}, is_best=False):
            get(self, files, nothing)
            is_given_up.set()

    def checked() -> None:
        if is_given_up.is_set():
            raise CutOff

    monkeypatch.setattr(RemoteFolder, "get", late)
    with pytest.raises(CutOff):
        second.remote().restore(2, checked)
    assert second.checkpoints.steps() == [1, 2] and damage(second.checkpoints.path(2)) is None
    assert load_state(second.checkpoints.path(2)) == {"step": 2, "by": "the run itself"}
    assert second.folder.metrics.read_text() == "of the run itself"
    assert not list(second.folder.path.rglob("*.part")) and second.checkpoints.best() is None


@pytest.mark.parametrize("gone", ["samples/step_2.jsonl", "metrics.jsonl"])
def test_a_file_deleted_while_files_are_copied_is_skipped_and_no_other_is_copied_twice(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    run, put_file = started(tmp_path / "one", file_store, 1, 2), LocalFileSystem.put_file
    put: list[str] = []

    def vanishing(self: Any, here: str, there: str, **options: Any) -> None:
        if here.endswith(gone):
            Path(here).unlink()
        put_file(self, here, there, **options)
        put.append(there)

    monkeypatch.setattr(LocalFileSystem, "put_file", vanishing)
    run.remote().copy(nothing)
    there = tmp_path / "store/run"
    assert run.remote().steps() == [1, 2] and len(put) == len(set(put))
    kept = {"metrics.jsonl", "samples/step_1.jsonl", "samples/step_2.jsonl"} - {gone}
    assert not (there / gone).exists() and all((there / name).is_file() for name in kept)


class BatchStore(AsyncFileSystem):
    """A local folder below a library that copies several files at once."""

    protocol = "batch"
    most_at_once = num_open = 0

    async def _put_file(self, lpath: str, rpath: str, callback: Any = None, **options: Any) -> None:
        assert not options, "the options of a copy are the store's own"
        cls = type(self)
        cls.num_open += 1
        cls.most_at_once = max(cls.most_at_once, cls.num_open)
        await asyncio.sleep(0.02)
        cls.num_open -= 1
        Path(rpath).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(lpath, rpath)
        callback.relative_update(1)

    async def _get_file(self, rpath: str, lpath: str, callback: Any = None, **options: Any) -> None:
        assert not options
        callback.relative_update(1)
        shutil.copy(rpath, lpath)
        callback.relative_update(1)


def test_a_library_that_can_copies_several_files_at_once_and_each_is_reported_when_it_is_there(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    fsspec.register_implementation("batch", BatchStore, clobber=True)
    BatchStore.most_at_once = 0
    there, copied = RemoteFolder(f"batch://{tmp_path}/store"), list[str]()
    names = [f"folder/{number}" for number in range(10)]
    for name in names:
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_text(name)
    there.put({name: tmp_path / "here" / name for name in names}, nothing, on_copied=copied.append)
    assert sorted(copied) == names and BatchStore.most_at_once == BATCH_FILES
    there.get({name: tmp_path / "back" / name for name in names}, nothing)
    assert [(tmp_path / "back" / name).read_text() for name in names] == names
    copied.clear()
    with pytest.raises(CutOff):
        there.put({name: tmp_path / "here" / name for name in names}, cut_at(4), on_copied=copied.append)
    assert len(copied) < len(names)
    with pytest.raises(CutOff):
        there.get({name: tmp_path / "cut" / name for name in names}, cut_at(4))
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == [], "no coroutine was left over"


def test_a_folder_deleted_in_the_meantime_is_skipped(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, scandir = started(tmp_path / "one", file_store, 1), os.scandir
    (run.folder.path / "capsules" / "step_1").mkdir(parents=True)
    (run.folder.path / "a-gone").mkdir()
    seen = []

    def gone(path: str) -> Any:
        seen.append(Path(path).name)
        if Path(path).name == "a-gone":
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    run.remote().copy(nothing)
    assert "a-gone" in seen and "capsules" not in seen
    assert (tmp_path / "store/run/metrics.jsonl").exists()


def test_a_reading_command_replaces_no_other_run(file_store: str, tmp_path: Path) -> None:
    started(tmp_path / "one", file_store, 1, 2).remote().copy(nothing)
    of_own = Run(tmp_path / "two", "", seed=3)
    of_own.config.algorithm.gamma = 0.5
    of_own.yaml = as_yaml(of_own.config)
    of_own.start()
    of_own.step(1)
    before = of_own.files()
    of_own.config.trainer.remote_dir = file_store
    with pytest.raises(ValueError, match=r"is the folder of another run; it differs in algorithm.gamma"):
        of_own.start(job="")
    assert of_own.files() == before


def test_the_further_of_the_two_is_gone_on_from(file_store: str, tmp_path: Path) -> None:
    first = started(tmp_path / "one", file_store, 1)
    first.remote().copy(nothing)
    second = started(tmp_path / "two", file_store, 2, 3)
    first.step(2)
    before = first.files()
    first.start()
    assert first.files() == before, "the remote folder is older"
    second.remote().copy(nothing)
    first.start()
    assert first.checkpoints.steps()[-1] == 3 and first.files()["metrics.jsonl"] == second.files()["metrics.jsonl"]


def test_reading_commands_restore_the_run_too_whatever_their_settings(file_store: str, tmp_path: Path) -> None:
    started(tmp_path / "one", file_store, 1).remote().copy(nothing)
    reader = Run(tmp_path / "two", file_store, val_only=True, seed=7)
    reader.start(job="")
    assert reader.checkpoints.steps() == [1]


# --- in parallel with the run


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_module, "CHECK_S", 0.02)
    monkeypatch.setattr(upload_module, "GIVE_UP_S", 0.2)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_checkpoints_are_copied_while_the_run_continues_and_all_else_at_the_end(store: str, tmp_path: Path) -> None:
    run = started(tmp_path / "one", store)
    with uploaded(run.config, run.folder):
        for step in (1, 2):
            run.step(step)
            until(lambda step=step: run.remote().steps() == list(range(1, step + 1)))
        (run.folder.path / "summary.json").write_text("{}")
    second = Run(tmp_path / "two", store)
    second.start()
    assert second.files()["summary.json"] == b"{}"


def test_without_a_remote_folder_nothing_is_begun(tmp_path: Path) -> None:
    run = Run(tmp_path, "")
    num_threads = threading.active_count()
    with uploaded(run.config, run.folder):
        assert threading.active_count() == num_threads


def test_a_store_that_fails_is_reported_and_tried_again_at_the_next_checkpoint(
    file_store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = started(tmp_path / "one", file_store)
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").write_text("in the way")
    with uploaded(run.config, run.folder):
        run.step(1)
        until(lambda: "failed (" in caplog.text)
        (tmp_path / "store").unlink()
        run.step(2)
        until(lambda: run.remote().steps() == [1, 2])
    assert f"the copy of the run to trainer.remote_dir={file_store} failed (" in caplog.text
    assert "The run's folder has all files, and the next checkpoint retries it." in caplog.text
    assert run.checkpoints.steps() == [1, 2] and current(CallThreads).abandoned() == []


def test_a_folder_that_cannot_be_listed_is_reported_once_and_its_next_checkpoint_is_copied(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, steps_in, num_failed = started(tmp_path / "one", file_store), upload_module.steps_in, 0

    def stale(folder: Path) -> list[int]:
        nonlocal num_failed
        if num_failed < 3:
            num_failed += 1
            raise OSError(116, "Stale file handle")
        return steps_in(folder)

    monkeypatch.setattr(upload_module, "steps_in", stale)
    with uploaded(run.config, run.folder):
        until(lambda: num_failed == 3)
        run.step(1)
        until(lambda: run.remote().steps() == [1])
    assert caplog.text.count(f"to trainer.remote_dir={file_store} could not start (OSError: [Errno 116] Stale") == 1
    assert f"Check the disk of {run.folder.path}" in caplog.text and "at the end of the run" not in caplog.text


def test_files_that_were_not_copied_are_reported_at_the_end(
    file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = started(tmp_path / "one", file_store)

    def full(self: RemoteFolder, *args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with uploaded(run.config, run.folder):
        run.step(1)
        until(lambda: run.remote().steps() == [1])
        time.sleep(0.2)  # until all else of the copy is there
        monkeypatch.setattr(RemoteFolder, "put", full)
        run.step(2)
        run.step(3)
    assert (
        f"at the end of the run, {file_store} lacks step_2, step_3, files written since the last copy. The same "
        f"command copies these from {run.folder.path}." in caplog.text
    )


class StuckStore(LocalFileSystem):
    """A local folder whose files cannot be put before they may be."""

    protocol = "stuck"
    may_put, may_get = threading.Event(), threading.Event()

    def __init__(self, **options: object) -> None:
        super().__init__(**{**options, "auto_mkdir": True})

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("stuck://")))

    def get_file(self, rpath: str, *args: object, **kwargs: object) -> None:
        if rpath.endswith("trainer.json"):
            self.may_get.wait(60)
        super().get_file(rpath, *args, **kwargs)

    def put_file(self, *args: object, **kwargs: object) -> None:
        self.may_put.wait(60)
        super().put_file(*args, **kwargs)


@pytest.fixture
def stuck() -> Iterator[type[StuckStore]]:
    fsspec.register_implementation("stuck", StuckStore, clobber=True)
    StuckStore.may_put.clear()
    with ExitStack() as end:
        end.callback(StuckStore.may_put.set)
        end.callback(StuckStore.may_get.set)
        yield StuckStore


@pytest.mark.slow
@pytest.mark.parametrize("has_own", [True, False])
def test_a_restore_that_takes_too_long_is_reported_and_leaves_the_folder_free(
    file_store: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    stuck: type[StuckStore],
    has_own: bool,
) -> None:
    monkeypatch.setattr(restore_module, "GIVE_UP_S", 0.2)
    first = started(tmp_path / "one", file_store, 1)
    first.remote().copy(nothing)
    second = started(tmp_path / "two", file_store) if has_own else Run(tmp_path / "two", file_store)
    first.step(2)
    first.remote().copy(nothing)
    StuckStore.may_get.clear()
    slow = Run(tmp_path / "two", f"stuck://{tmp_path}/store", remote_timeout_s=2.0)
    if has_own:
        slow.start()
        assert "did not deliver step_2 within trainer.remote_timeout_s=2; the run continues from" in caplog.text
    else:
        with pytest.raises(ValueError, match=r"did not deliver step_2 within .* Raise trainer.remote_timeout_s"):
            slow.start()
    with FolderLock(slow.folder.path):  # it refused the run that had given it up
        StuckStore.may_get.set()  # now it comes after all, and nobody wants it
    assert slow.checkpoints.steps() == ([1] if has_own else [])
    second.start()
    assert second.checkpoints.steps()[-1] == 2


def test_a_store_that_hangs_holds_up_neither_steps_nor_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stuck: type[StuckStore]
) -> None:
    run = Run(tmp_path / "one", f"stuck://{tmp_path}/store", remote_timeout_s=0.2)
    run.start()
    upload = Upload(run.config, run.folder)
    upload.start()
    run.step(1)
    until(lambda: "took longer than trainer.remote_timeout_s=0.2" in caplog.text)
    began = time.monotonic()
    run.step(2)
    upload.finish()
    assert time.monotonic() - began < 3
    assert "and the same command retries it" in caplog.text
    # So that the command does not wait for the exit handlers of the store's library.
    assert set(current(CallThreads).abandoned()) == {f"the copy to {run.config.trainer.remote_dir}"}
    assert run.checkpoints.steps() == [1, 2] and run.remote().steps() == []


def test_copies_that_hang_hold_no_more_than_so_many_threads_and_another_begins_when_one_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, stuck: type[StuckStore]
) -> None:
    monkeypatch.setattr(upload_module, "MAX_HANGING", 2)
    run = Run(tmp_path / "one", f"stuck://{tmp_path}/store", remote_timeout_s=0.2)
    run.start()
    upload = Upload(run.config, run.folder)
    assert [upload._copy() for _ in range(4)] == [False] * 4
    assert caplog.text.count("took longer than trainer.remote_timeout_s=0.2") == 2
    assert caplog.text.count("was not started, because 2 earlier copies still hang") == 2
    assert current(CallThreads).abandoned() == [f"the copy to {run.config.trainer.remote_dir}"] * 2
    StuckStore.may_put.set()
    until(lambda: not current(CallThreads).abandoned())
    upload._timeout_s = 20.0
    assert upload._copy()


def test_a_run_that_must_end_at_once_waits_for_no_store(tmp_path: Path, stuck: type[StuckStore]) -> None:
    run = started(tmp_path / "one", f"stuck://{tmp_path}/store", 1)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), uploaded(run.config, run.folder):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 3


# --- what is refused


def test_another_run_in_the_remote_folder_is_refused(file_store: str, tmp_path: Path) -> None:
    started(tmp_path / "one", file_store, 1, 2).remote().copy(nothing)
    other = Run(tmp_path / "two", file_store)
    other.yaml = other.yaml.replace("train_batch_size: 32", "train_batch_size: 64")
    with pytest.raises(ValueError, match=r"store/run is the folder of another run; .*train_batch_size \(32 there, 64"):
        other.start()
    with pytest.raises(ValueError, match=r"store/run already holds a run, and trainer.resume=never"):
        Run(tmp_path / "two", file_store, resume="never").start()
    step_1 = str(tmp_path / "one/run/checkpoints/step_1")
    with pytest.raises(ValueError, match=r"step_1 is step 1, but .*store/run holds step_2 of another continuation"):
        Run(tmp_path / "two", file_store, resume=step_1).start()
    assert not (tmp_path / "two").exists()


def test_a_run_without_a_checkpoint_in_the_remote_folder_is_refused_as_in_the_runs_own(
    file_store: str, tmp_path: Path
) -> None:
    first = started(tmp_path / "one", file_store)
    first.remote().copy(nothing)
    other = Run(tmp_path / "two", file_store)
    other.yaml = other.yaml.replace("train_batch_size: 32", "train_batch_size: 64")
    other.start()  # nothing was logged there, so nothing is lost
    shutil.rmtree(tmp_path / "two")
    first.folder.metrics.write_text('{"step": 1}\n')
    first.remote().copy(nothing)
    with pytest.raises(ValueError, match=r"store/run is the folder of another run; .*train_batch_size \(32 there, 64"):
        other.start()
    with pytest.raises(ValueError, match=r"store/run already holds a run, and trainer.resume=never"):
        Run(tmp_path / "two", file_store, resume="never").start()
    assert not (tmp_path / "two").exists()
    Run(tmp_path / "two", file_store).start()  # the same run, which begins anew


class LostStore(LocalFileSystem):
    """A store that is not there."""

    protocol = "lost"

    def find(self, path: str, *args: object, **kwargs: object) -> None:
        raise ConnectionError("no route to the store")


def test_a_store_that_cannot_be_read_ends_a_start_without_another_checkpoint(
    file_store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = started(tmp_path / "one", file_store, 1)
    fsspec.register_implementation("lost", LostStore, clobber=True)
    url = "lost://bucket"
    Run(tmp_path / "one", url).start()
    assert f"trainer.remote_dir={url} cannot be used (ConnectionError: no route to the store)" in caplog.text
    assert f"the run continues from {own.checkpoints.path(1)}" in caplog.text
    with pytest.raises(ValueError, match=r"so it is unknown whether it holds the run. Check the store's cred"):
        Run(tmp_path / "two", url).start()


def test_a_store_that_cannot_be_written_ends_a_start_and_not_the_first_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("in the way")
    with pytest.raises(ValueError, match=r"store cannot be used \((NotADirectory|FileExists)Error: "):
        Run(tmp_path / "one", f"file://{tmp_path}/store").start()


def test_a_bucket_that_is_not_there_ends_a_start(s3: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"s3://misspelt/runs cannot be used \(FileNotFoundError: .*bucket does not"):
        Run(tmp_path / "one", "s3://misspelt/runs").start()


def test_a_kind_of_store_that_cannot_be_opened_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unreadable_kind("trainer.remote_dir", "file:///mnt/runs") is None
    assert "fsspec does not support s4://" in (unreadable_kind("trainer.remote_dir", "s4://bucket") or "")

    def missing(kind: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    assert unreadable_kind("trainer.remote_dir", "s3://bucket/runs") == (
        "trainer.remote_dir is s3://bucket/runs, but the package that reads s3:// is not installed. "
        "Run `pip install s3fs`."
    )


@pytest.mark.parametrize(
    "key", ["../outside.txt", "samples/../../../outside.txt", "checkpoints/step_1/../../../outside"]
)
def test_a_run_whose_store_names_a_file_elsewhere_is_not_restored(
    key: str, file_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(tmp_path / "first", file_store, 1)
    run.remote().copy(nothing)
    find = LocalFileSystem.find

    def with_another(self: Any, path: str, **options: Any) -> Any:
        return {**find(self, path, **options), f"{tmp_path}/store/run/{key}": {"size": 1}}

    monkeypatch.setattr(LocalFileSystem, "find", with_another)
    with pytest.raises(ValueError, match="would be written outside of the folder"):
        Run(tmp_path / "second", file_store).start()
    assert not list(tmp_path.rglob("outside*"))


def test_what_is_hidden_in_a_store_stays_there(file_store: str, tmp_path: Path) -> None:
    run = started(tmp_path / "first", file_store, 1)
    (run.folder.path / ".secrets.yaml").write_text("model.path: mine")
    run.remote().copy(nothing)
    there = tmp_path / "store/run"
    assert not (there / ".secrets.yaml").exists()
    (there / ".secrets.yaml").write_text("model.path: foreign")
    (there / "samples/.hidden").write_text("foreign")
    second = Run(tmp_path / "second", file_store)
    second.start()
    assert second.checkpoints.steps() == [1]
    assert not [path for path in second.folder.path.rglob(".*") if path.is_file() and path.read_text() == "foreign"]
