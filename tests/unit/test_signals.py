"""Signals that end a whole run: workers leave them to the driver, and what a user's function starts can be ended."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit._reward import sample, scorer_process, task
from verl_like.call_threads import BLOCKED_SIGNALS, ENDING_SIGNALS, CallThreads
from verl_like.runs import signals
from verl_like.telemetry.live import LiveDisplay

REWARD = """
import subprocess
def score(solution_str):
    with subprocess.Popen(["sleep", "60"]) as started:
        started.terminate()
        return float(started.wait(timeout=10))
"""
WORKER = """
import os, signal, subprocess
from verl_like.controller import signals
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # as Ray's servers pass it on
signals.leave_to_driver()
for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    os.kill(os.getpid(), signum)
with subprocess.Popen(["sleep", "60"]) as started:
    started.terminate()
    print("goes on;", started.wait(timeout=10))
"""


@pytest.mark.processes
def test_a_worker_continues_after_signals_that_end_all_and_its_children_do_not() -> None:
    ended = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "goes on; -15\n"


@pytest.mark.processes
def test_what_a_reward_starts_can_be_ended_by_sigterm(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(REWARD)

    def scored() -> float | None:
        """On a thread that has the mask of Ray's servers, as those of a scorer host do."""
        with scorer_process(task(f"{tmp_path}/reward.py:score")) as scorer:
            [outcome] = scorer.score([sample("anything")])
        return outcome.score

    threads = CallThreads("score", blocked_signals=BLOCKED_SIGNALS)
    assert threads.call("a score", scored, limit_s=60) == -signal.SIGTERM


@pytest.mark.processes
@pytest.mark.parametrize("signum", sorted(ENDING_SIGNALS))
def test_a_driver_keeps_its_handlers_from_a_library(signum: signal.Signals) -> None:
    """ctypes sets a handler beneath Python's, on another thread, as Ray does for SIGTERM; it would end the process."""
    code = f"""
import ctypes, os, signal, threading
from verl_like.controller import signals
signal.signal({int(signum)}, lambda *_: print("heard"))
library = lambda: ctypes.CDLL(None).signal({int(signum)}, ctypes.c_void_p(signal.SIG_DFL.value))
start = threading.Thread(target=signals.with_own_handlers(library))
start.start()
start.join()
os.kill(os.getpid(), {int(signum)})
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "heard\n"), ended.stderr


def test_what_a_signal_says_goes_above_a_live_picture(capfd: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    display = LiveDisplay(Console(file=out, force_terminal=True), lambda: "the picture")
    display.start()
    try:
        signals._say_above("stopping cleanly")
        for thread in threading.enumerate():
            if thread.name == "say":
                thread.join(10)
    finally:
        display.stop()
    assert "stopping cleanly\nthe picture" in re.sub(r"\x1b\[\S*?[A-Za-z]", "", out.getvalue()).replace("\r", "")
    assert capfd.readouterr().err == "", "a bare line tears the picture"


def test_without_a_picture_a_signal_says_it_on_a_line_of_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    signals._say_above("stopping cleanly")
    assert capfd.readouterr().err == "\nstopping cleanly\n"
