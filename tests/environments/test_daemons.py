"""What an environment starts lives no longer than its episode, and not 10 s after the process that generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.environments import _files
from tests.environments._processes import comes_true, is_running, playing
from verl_like.environments.processes import CallFailure

pytestmark = [pytest.mark.processes, pytest.mark.alone]
ROOT = Path(__file__).parents[2]
TURN = {"text": "x", "message": {"role": "assistant", "content": "x"}}
DEAF = """
import os, signal, subprocess, sys

class Deaf:
    def reset(self, file, **row):
        code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True)"
        code += "; time.sleep(1000)"
        self.server = subprocess.Popen(
            [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE, text=True)
        open(file, "w").write(self.server.stdout.readline())
        return "go"

    def step(self, text):
        return "fine", 0.0, text == "stop"
"""


@pytest.mark.parametrize("ending", ["end", "kill", "daemon hang"])
def test_a_daemon_ends_with_its_episode_and_no_earlier(tmp_path: Path, ending: str) -> None:
    """The daemon has left session and parents; the episode finishes, or its process is killed, or hangs."""
    pid_file = tmp_path / "pid"
    with playing(tmp_path, _files.WRECK, "Wreck") as played:
        process, _ = played.reset(
            do="daemon hang" if ending == "daemon hang" else "daemon", number=1, file=str(pid_file)
        )
        other, _ = played.reset(do="daemon", number=2, file=str(tmp_path / "other"))
        played.step(process, "x")
        for each in (other, other):
            played.step(each, "x")
        if ending == "daemon hang":
            found = played.ask(process, {"do": "step", "turn": TURN}, limit_s=3.0)
            assert isinstance(found, CallFailure) and found.reason == "timeout"
        else:
            played.step(process, "x")
        daemon, kept = int(pid_file.read_text()), int((tmp_path / "other").read_text())
        if ending != "daemon hang":
            assert is_running(daemon), "a server may serve its episode"
        if ending == "end":
            played.reward(process)
            played.processes.end(process)
        elif ending == "kill":
            psutil.Process(psutil.Process(daemon).ppid()).kill()
        assert comes_true(lambda: not is_running(daemon), within_s=5.0)
        assert is_running(kept), "a daemon of another episode continues"
        again, _ = played.reset(do="", number=3)
        assert not played.step(again, "x")["is_done"]
    assert not is_running(kept), "it is gone when the processes are closed"


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with playing(tmp_path, DEAF, "Deaf") as played:
        process, _ = played.reset(file=str(tmp_path / "pid"))
        server = int((tmp_path / "pid").read_text())
        played.processes.end(process)
        assert comes_true(lambda: not is_running(server), within_s=5.0)


def test_what_loading_starts_serves_all_episodes_and_ends_with_the_nursery(tmp_path: Path) -> None:
    source = """
import subprocess

SERVER = subprocess.Popen(["sleep", "1000"], start_new_session=True)

class Env:
    def reset(self, **row):
        return str(SERVER.pid)

    def step(self, text):
        return "fine", 0.0, False
"""
    with playing(tmp_path, source, "Env") as played:
        for _ in range(3):
            process, found = played.reset()
            played.processes.end(process)
            played.reset()
        server = int(found["messages"][-1]["content"])
        assert is_running(server)
    assert not is_running(server)


HOLDER = """
import sys, time
from pathlib import Path
from tests.environments import _files
from tests.environments._processes import playing

folder = Path(sys.argv[1])
with playing(folder, _files.WRECK, "Wreck") as played:
    for do in ("daemon", "daemon hang", "stop"):
        process, _ = played.reset(do=do, number=1, file=str(folder / do))
        played.step(process, "x")
        turn = {"text": "x", "message": {"role": "assistant", "content": "x"}}
        played.processes.call(process, {"do": "step", "episode": 1, "turn": turn}, limit_s=1000)
    while not all((folder / do).exists() for do in ("daemon", "daemon hang")):
        played.processes.poll(0.1)
    print("hanging", flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("stopped", ["none", "subreaper", "all"])
def test_nothing_lives_ten_seconds_after_the_process_that_generates_was_killed(tmp_path: Path, stopped: str) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "hanging\n"
        started = psutil.Process(holder.pid).children(recursive=True)
        daemons = {int((tmp_path / do).read_text()) for do in ("daemon", "daemon hang")}
        assert daemons < {each.pid for each in started}, "they are children of the subreapers"
        for each in {"none": [], "subreaper": started[:1], "all": started}[stopped]:
            each.suspend()
        holder.kill()
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
