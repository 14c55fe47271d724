"""/dev/shm: a warning before it is full, and the cause of what dies once it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from verl_like.controller.cluster import Health
from verl_like.controller.node_watchdogs import _pass_on
from verl_like.controller.verdicts import Verdicts
from verl_like.machine import shared_memory
from verl_like.machine.shared_memory import MIB, RECENT_S, SharedMemory
from verl_like.watchdog.node import Notice
from verl_like.watchdog.sibling import Settings, Sibling

FULL = "; /dev/shm was full (0 of 1,024 MiB left), and the kernel then ends processes that write there by SIGBUS."


class FileSystem:
    """A /dev/shm of 1 GiB, and the time."""

    def __init__(self) -> None:
        self.left_mib, self.now = 1024, 100.0

    def statvfs(self, folder: Path) -> SimpleNamespace:
        assert folder == shared_memory.FOLDER
        return SimpleNamespace(f_bavail=self.left_mib * MIB // 4096, f_blocks=1024 * MIB // 4096, f_frsize=4096)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def shm(monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    found = FileSystem()
    monkeypatch.setattr(shared_memory, "os", found)
    monkeypatch.setattr(shared_memory, "time", found)
    return found


def test_little_memory_is_warned_of_once_and_again_after_there_was_enough(shm: FileSystem) -> None:
    memory, warned = SharedMemory(), []
    for shm.left_mib in (1024, 103, 102, 50, 110, 102, 300, 102):  # a tenth is 102.4
        shm.now += 1.0
        warned.append(bool(memory.check()))
    assert warned == [False, False, True, False, False, False, False, True]


def test_the_warning_says_how_much_is_left_and_what_helps(shm: FileSystem) -> None:
    shm.left_mib = 50
    text = SharedMemory().check()
    assert text.startswith("/dev/shm has 50 of 1,024 MiB left.") and "docker run --shm-size" in text


def test_a_death_is_explained_by_full_memory_just_before_it_even_if_memory_is_free_now(shm: FileSystem) -> None:
    memory = SharedMemory()
    assert memory.clause() == ""
    shm.left_mib = 0
    memory.check()
    shm.left_mib, shm.now = 900, shm.now + RECENT_S
    assert memory.clause().startswith(FULL)
    shm.now += 0.1
    assert memory.clause() == ""


def test_a_machine_without_shared_memory_is_none_that_lacks_it(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "absent")
    assert (memory.check(), memory.clause()) == ("", "")


@pytest.mark.processes
def test_a_server_of_ray_that_is_ended_by_sigbus_is_named_with_the_cause(shm: FileSystem) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGBUS)"
    with subprocess.Popen([sys.executable, "-c", code]) as server:
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        shm.left_mib = 0
        trouble = Health().trouble({"raylet": psutil.Process(server.pid)})
    assert server.returncode == -signal.SIGBUS
    assert trouble.startswith(f"Ray's raylet (process {server.pid}) was ended by SIGBUS{FULL}")


def test_a_driver_that_ends_without_a_word_is_explained_by_a_full_memory(
    shm: FileSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shm.left_mib = 0
    watchdog = Sibling(Settings(folder=str(tmp_path), driver=1, stalls=str(tmp_path), floor_s=60.0, ends=False))
    watchdog._report_driver_end()
    assert f"has ended without a message{FULL}" in capsys.readouterr().err


def test_a_warning_of_another_node_reaches_the_drivers_log_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    verdicts = Verdicts()
    verdicts.expect(acts=True)
    _pass_on("the watchdog of node-2", [Notice("little is left", is_warning=True)], verdicts)
    verdicts.check()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "the watchdog of node-2: little is left")
    ]
