"""kill -USR1 prints what every thread does, and does nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verl_like.call_threads import BLOCKED_SIGNALS, CallThreads
from verl_like.telemetry import stacks

pytestmark = pytest.mark.processes

BUSY = """
import sys, threading
from verl_like.telemetry import stacks

def deep(n):
    return deep(n - 1) + 1 if n else 0

def spin():
    while True:
        deep(50)

def waiting():
    threading.Event().wait()

stacks.listen()
for work in (spin, spin, waiting):
    threading.Thread(target=work, name=work.__name__, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()  # until the other side closes
"""


@pytest.fixture
def busy(tmp_path: Path) -> subprocess.Popen[str]:
    """A process whose threads run Python while its main thread waits in a system call."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "stderr").open("w"),
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def printed(tmp_path: Path) -> str:
    return (tmp_path / "stderr").read_text()


def until_printed(tmp_path: Path) -> None:
    deadline = time.monotonic() + 20
    while "in <module>" not in printed(tmp_path):
        assert time.monotonic() < deadline, printed(tmp_path)
        time.sleep(0.02)


def ended(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(timeout=30)


def test_the_stacks_of_all_threads_are_printed(busy: subprocess.Popen[str], tmp_path: Path) -> None:
    busy.send_signal(signal.SIGUSR1)
    until_printed(tmp_path)
    assert ended(busy) == 0
    message = printed(tmp_path)
    assert f"stacks of process {busy.pid} at 20" in message
    for name, function in (("spin", "in spin"), ("waiting", "in waiting"), ("MainThread", "in <module>")):
        assert f"thread {name}:\n" in message and function in message


def test_a_thousand_signals_end_no_process(busy: subprocess.Popen[str], tmp_path: Path) -> None:
    """A request for stacks must not end the process."""
    for _ in range(1000):
        busy.send_signal(signal.SIGUSR1)
        time.sleep(0.002)
    assert ended(busy) == 0, printed(tmp_path)[-2000:]
    assert printed(tmp_path).count("stacks of process") > 10


LATE = """
import sys
print("ready", flush=True)
sys.stdin.readline()
from verl_like.telemetry import stacks
stacks.listen()
sys.stdin.read()
"""


def test_a_signal_that_comes_before_a_process_listens_is_answered_when_it_does(tmp_path: Path) -> None:
    with stacks.held_back():
        process = subprocess.Popen(
            [sys.executable, "-c", LATE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "stderr").open("w"),
            text=True,
            cwd=Path(__file__).parents[2],
        )
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    process.send_signal(signal.SIGUSR1)  # as early as it can come
    assert process.stdout is not None and process.stdin is not None and process.stdout.readline() == "ready\n"
    assert printed(tmp_path) == ""
    process.stdin.write("\n")
    process.stdin.flush()
    until_printed(tmp_path)
    assert ended(process) == 0


def test_what_ray_starts_has_the_signal_blocked_and_a_worker_lets_it_through(tmp_path: Path) -> None:
    """Ray's servers are started on a call thread, and pass its mask on to workers."""
    worker = """
from verl_like.controller import signals
from verl_like.telemetry import stacks
stacks.listen()
signals.let_through()
import signal, sys
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
sys.stdin.read()
"""

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "stderr").open("w"),
            text=True,
            cwd=Path(__file__).parents[2],
        )

    process = CallThreads("start", blocked_signals=BLOCKED_SIGNALS).call("a start", started, limit_s=60)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout is not None and process.stdout.readline() == "set()\n"
    until_printed(tmp_path)
    assert ended(process) == 0


def test_the_command_survives_the_signal_from_its_first_lines_on() -> None:
    """It is sent while the command line is still being imported, and again under ``ends_cleanly``."""
    code = """
import builtins, os, signal, sys, time
import verl_like.cli
from verl_like.__main__ import main
from verl_like.runs.signals import ends_cleanly
imported = builtins.__import__

def importing(name, *rest):
    if name == "verl_like.cli":
        os.kill(os.getpid(), signal.SIGUSR1)
    return imported(name, *rest)

def command():
    with ends_cleanly(60, lambda: ""):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.3)
    return 7

verl_like.cli.main, builtins.__import__ = command, importing
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.count("stacks of process")) == (7, 3), ended.stderr


def test_a_script_that_calls_a_run_survives_it_too_and_has_its_own_handler_back() -> None:
    code = """
import os, signal, time
from verl_like.runs.signals import ends_cleanly
with ends_cleanly(60, lambda: ""):
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.3)
assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
signal.signal(signal.SIGUSR1, lambda *_: print("the script's own"))
with ends_cleanly(60, lambda: ""):
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.1)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "the script's own\n"), ended.stderr
    assert "stacks of process" in ended.stderr
