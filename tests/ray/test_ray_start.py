"""Ray's servers lost while they start, and Ctrl-C meanwhile: one line in seconds, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests._left_behind import leaked_shared_memory
from tests._tiers import slow_but
from tests.ray._starting import GRACE_S, STOPPED_S
from tests.ray.conftest import ROOT
from tests.ray.test_lost_ray import none_left

START_S = 60.0


class Start:
    """A running ``tests.ray._starting``."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            command = [sys.executable, "-m", "tests.ray._starting"]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        self.members: dict[int, psutil.Process] = {}

    @property
    def output(self) -> str:
        return self._log.read_text()

    def check(self) -> None:
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                self.members.setdefault(process.pid, process)

    def server(self, name: str) -> psutil.Process:
        """Ray's server of this name, as soon as it runs."""
        deadline = time.monotonic() + START_S
        while True:
            self.check()
            for process in list(self.members.values()):
                with suppress(psutil.NoSuchProcess):
                    if process.name() == name:
                        return process
            assert time.monotonic() < deadline and self.process.poll() is None, self.output
            time.sleep(0.005)

    def ended(self, within_s: float) -> int:
        deadline = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it still runs after {within_s:.0f} s:\n{self.output}"
            self.check()
            time.sleep(0.02)
        return self.process.returncode

    def end(self) -> None:
        self.check()
        for process in [*self.members.values(), *([psutil.Process(self.process.pid)] if self.is_running else [])]:
            if process.is_running():
                process.kill()
        self.process.wait(10)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made = Start(tmp_path / "log")
    try:
        yield made
    finally:
        made.end()


@pytest.mark.parametrize(
    ("server", "signum"),
    slow_but(
        {"gcs_server-SIGKILL", "raylet-SIGSTOP"},
        (
            (f"{server}-{signum.name}", (server, signum))
            for server in ("gcs_server", "raylet")
            for signum in (signal.SIGKILL, signal.SIGSTOP)
        ),
    ),
)
def test_a_server_that_is_lost_while_ray_starts_is_named_in_seconds_and_nothing_is_left(
    start: Start, server: str, signum: signal.Signals
) -> None:
    shared_memory = set(os.listdir("/dev/shm"))
    process = start.server(server)
    began = time.monotonic()
    process.send_signal(signum)
    assert start.ended(within_s=STOPPED_S + 10) == 1
    how = "was ended by SIGKILL" if signum == signal.SIGKILL else f"has been stopped for {STOPPED_S:.0f} s"
    name = {"gcs_server": "GCS", "raylet": "raylet"}[server]
    [line] = [line for line in start.output.splitlines() if line.startswith("error: ")]
    assert re.match(rf"error: Ray's {name} \(process {process.pid}\) {how} while Ray started\.", line)
    assert "Traceback" not in start.output and time.monotonic() - began < STOPPED_S + 10
    assert none_left(list(start.members.values())) == []
    assert leaked_shared_memory(shared_memory) == set()


@pytest.mark.parametrize(
    ("moment", "signum"),
    slow_but(
        {"gcs_server-SIGINT", "raylet-SIGTERM", "raylet, a moment later-SIGHUP"},
        (
            (f"{moment}-{signum.name}", (moment, signum))
            for moment in ("gcs_server", "raylet", "raylet, a moment later")
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ),
    ),
)
def test_ctrl_c_while_ray_starts_ends_in_time_and_leaves_nothing(
    start: Start, moment: str, signum: signal.Signals
) -> None:
    start.server(moment.partition(",")[0])
    time.sleep(0.3 if "," in moment else 0.0)
    start.process.send_signal(signum)
    assert start.ended(within_s=GRACE_S) in (0, 130)  # 0 where Ray was up by then
    assert none_left(list(start.members.values())) == []
    assert "Traceback" not in start.output
