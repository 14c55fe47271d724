"""kill -USR1 prints what every thread does, and does nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def ended(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(timeout=30)


def test_the_stacks_of_all_threads_are_printed(busy: subprocess.Popen[str], tmp_path: Path) -> None:
    busy.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 20
    while "in <module>" not in printed(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended(busy) == 0
    said = printed(tmp_path)
    assert f"stacks of process {busy.pid} at 20" in said
    for name, function in (("spin", "in spin"), ("waiting", "in waiting"), ("MainThread", "in <module>")):
        assert f"thread {name}:\n" in said and function in said


def test_a_thousand_signals_harm_nobody(busy: subprocess.Popen[str], tmp_path: Path) -> None:
    """A look at a process must not end it."""
    for _ in range(1000):
        busy.send_signal(signal.SIGUSR1)
        time.sleep(0.002)
    assert ended(busy) == 0, printed(tmp_path)[-2000:]
    assert printed(tmp_path).count("stacks of process") > 10
