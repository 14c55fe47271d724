"""A run folder is one run's at a time, and free again however that run ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from verl_like.runs import lock as folder_lock
from verl_like.runs.lock import STALE_S, FolderLock, is_held, refuse_held

HOLDER = """
import sys, time
from pathlib import Path
from verl_like.runs.lock import FolderLock

with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def take(folder: Path) -> None:
    with FolderLock(folder):
        pass


@pytest.mark.processes
@pytest.mark.parametrize("use", [take, refuse_held])
def test_a_folder_in_use_is_refused_with_the_holders_name(use: Callable[[Path], None], tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(ValueError, match="is in use by another run") as refused:
            use(tmp_path)
        assert f"process {process.pid} on {socket.gethostname()}, started 20" in str(refused.value)
        assert "choose another trainer.experiment_name" in str(refused.value)
    finally:
        process.kill()
        process.wait()


@pytest.mark.processes
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_leaves_the_folder_free(how: int, tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.send_signal(how)
    process.wait()
    refuse_held(tmp_path)
    take(tmp_path)


def test_a_run_that_ends_leaves_the_folder_free_and_a_next_one_holds_it(tmp_path: Path) -> None:
    for _ in range(2):
        with FolderLock(tmp_path / "run"):
            assert json.loads((tmp_path / "run/.lock").read_text())["pid"] == os.getpid()
            with pytest.raises(ValueError, match="in use"):
                take(tmp_path / "run")
        refuse_held(tmp_path / "run")


def test_a_folder_that_is_not_there_is_free_and_is_not_made(tmp_path: Path) -> None:
    refuse_held(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def held_by(folder: Path, *, host: str, pid: int, silence_s: float = 0.0) -> None:
    """Write the lock file of a run whose lock, if it has one, is not visible here."""
    (folder / ".lock").write_text(json.dumps({"host": host, "pid": pid, "started": "2026-01-01 00:00:00"}))
    then = time.time() - silence_s
    os.utime(folder / ".lock", (then, then))


def test_a_run_on_another_machine_holds_the_folder_as_long_as_its_heart_beats(tmp_path: Path) -> None:
    held_by(tmp_path, host="elsewhere", pid=1)
    for use in (take, refuse_held):
        with pytest.raises(ValueError, match="process 1 on elsewhere, started 2026-01-01 00:00:00"):
            use(tmp_path)
    held_by(tmp_path, host="elsewhere", pid=1, silence_s=STALE_S + 5)
    refuse_held(tmp_path)
    take(tmp_path)


def test_the_heart_beats_while_the_folder_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "HEARTBEAT_S", 0.05)
    with FolderLock(tmp_path):
        os.utime(tmp_path / ".lock", (0, 0))
        deadline = time.monotonic() + 10
        while (tmp_path / ".lock").stat().st_mtime == 0:
            assert time.monotonic() < deadline, "no heartbeat"
            time.sleep(0.02)


@pytest.mark.processes
def test_on_a_disk_without_locks_a_living_process_holds_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    held_by(tmp_path, host=socket.gethostname(), pid=os.getppid())
    with pytest.raises(ValueError, match="in use"):
        take(tmp_path)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    held_by(tmp_path, host=socket.gethostname(), pid=dead.pid)
    take(tmp_path)


def test_a_file_that_says_nothing_holds_nothing(tmp_path: Path) -> None:
    for text in ("", "{", "[]", "null"):
        (tmp_path / ".lock").write_text(text)
        refuse_held(tmp_path)
        take(tmp_path)


def test_whether_a_run_holds_the_folder_is_known_without_locking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_held(tmp_path)
    with FolderLock(tmp_path):
        monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("a run that starts now would be refused"))
        assert is_held(tmp_path)
    assert not is_held(tmp_path), "it ended"


@pytest.mark.parametrize(
    ("host", "pid", "silence_s", "expected"),
    [
        ("elsewhere", 1, 0.0, True),
        ("elsewhere", 1, STALE_S + 5, False),
        (socket.gethostname(), os.getpid(), 0.0, True),
        (socket.gethostname(), 2**22 + 1, 0.0, False),  # above the largest number of a process
        (socket.gethostname(), os.getpid(), 1e9, False),  # this process is younger than the heartbeat
    ],
    ids=["elsewhere", "elsewhere-silent", "here", "here-gone", "here-younger"],  # xdist's processes have other numbers
)
def test_a_folder_is_held_by_a_process_that_lives_or_whose_heart_beats(
    host: str, pid: int, silence_s: float, expected: bool, tmp_path: Path
) -> None:
    held_by(tmp_path, host=host, pid=pid, silence_s=silence_s)
    assert is_held(tmp_path) is expected


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"host": "%s"}', '{"host": "%s", "pid": "x"}'])
def test_a_damaged_lock_file_holds_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(content.replace("%s", socket.gethostname()))
    assert not is_held(tmp_path)
