"""Calls on lines: whatever the call does, whoever waits for it gets a result, an error or a deadline."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

from verl_like.controller.bounded import ENDING_SIGNALS, Lines, NoAnswer


def test_a_call_gives_its_result_or_raises_its_error() -> None:
    lines = Lines()
    assert lines.call("a sum", lambda: 1 + 1, limit_s=10) == 2
    with pytest.raises(KeyError, match="'missing'"):
        lines.call("a look-up", lambda: {}["missing"], limit_s=10)
    assert not lines.are_stuck


def test_a_call_that_does_not_return_is_left_at_the_limit_and_known_to_be_stuck_until_it_does() -> None:
    lines, door = Lines(), threading.Event()
    with pytest.raises(NoAnswer, match=r"no answer to the door within 0\.1 s"):
        lines.call("the door", lambda: door.wait(30), limit_s=0.1)
    assert lines.are_stuck
    assert lines.call("another", lambda: "another line", limit_s=10) == "another line"
    door.set()
    deadline = time.monotonic() + 10
    while lines.are_stuck:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_look_raises_ends_the_wait() -> None:
    def look() -> None:
        raise LookupError("it is gone")

    with pytest.raises(LookupError, match="it is gone"):
        Lines().call("nothing", lambda: time.sleep(3), limit_s=30, look=look)


def test_ctrl_c_ends_the_wait_for_a_call() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever other tests have put there
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            Lines().call("nothing", lambda: time.sleep(5), limit_s=30)
        assert time.monotonic() - started < 4
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_line_at_rest_holds_neither_arguments_nor_results() -> None:
    class Block: ...

    lines, blocks = Lines(), [Block()]
    known = weakref.ref(blocks[0])
    lines.call("itself", blocks.pop, limit_s=10)
    gc.collect()
    assert known() is None


def test_what_a_call_starts_is_left_to_the_driver_by_signals_that_end_all() -> None:
    def blocked() -> str:
        return subprocess.run(
            ["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True, check=True, timeout=10
        ).stdout

    mask = int(Lines().call("grep", blocked, limit_s=20).split()[1], 16)
    assert all(mask >> (signum - 1) & 1 for signum in ENDING_SIGNALS)


def test_time_in_which_the_process_is_stopped_does_not_count() -> None:
    """As after Ctrl-Z and fg, or when a laptop wakes."""
    code = """
import time
from verl_like.controller.bounded import Lines
def call():
    print("begun", flush=True)
    time.sleep(0.8)
    return "answered"
print(Lines().call("a nap", call, limit_s=3), flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=20)[0] == "answered\n"
    finally:
        process.kill()
        process.wait(timeout=10)
