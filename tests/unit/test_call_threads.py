"""Calls that threads make: whatever a call does, its caller gets a result, an error or a deadline."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from verl_like.call_threads import BLOCKED_SIGNALS, ENDING_SIGNALS, Abandoned, CallThreads, Check, NoAnswer, PendingCall
from verl_like.telemetry import stacks


@pytest.fixture
def threads() -> CallThreads:
    return CallThreads("test call")


@pytest.fixture
def door() -> Iterator[threading.Event]:
    """Hold back calls that hang, until the end of the test."""
    door = threading.Event()
    yield door
    door.set()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_call_gives_its_result_or_raises_its_error(threads: CallThreads) -> None:
    assert threads.call("a sum", lambda: 1 + 1, limit_s=10) == 2
    with pytest.raises(KeyError, match="'missing'"):
        threads.call("a look-up", lambda: {}["missing"], limit_s=10)
    assert not threads.is_busy


def test_a_call_that_hangs_is_left_at_the_limit_and_known_to_be_under_way_until_it_returns(
    threads: CallThreads, door: threading.Event
) -> None:
    with pytest.raises(NoAnswer, match=r"^no answer to the door within 0\.1 s\Z"):
        threads.call("the door", lambda: door.wait(30), limit_s=0.1)
    assert threads.is_busy and threads.abandoned() == ["the door"]
    assert threads.call("another", lambda: "another thread", limit_s=10) == "another thread"
    door.set()
    until(lambda: not threads.is_busy)
    assert threads.abandoned() == []


def test_what_a_check_raises_ends_the_wait(threads: CallThreads, door: threading.Event) -> None:
    def check() -> None:
        raise LookupError("it is gone")

    with pytest.raises(LookupError, match="it is gone"):
        threads.call("nothing", lambda: door.wait(30), limit_s=30, check=check)
    assert threads.abandoned() == ["nothing"]


def test_ctrl_c_ends_the_wait_for_a_call(threads: CallThreads, door: threading.Event) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever other tests have put there
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            threads.call("nothing", lambda: door.wait(30), limit_s=30)
        assert time.monotonic() - started < 4
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_the_result_of_a_late_call_is_still_available(threads: CallThreads, door: threading.Event) -> None:
    pending = threads.begin("the door", lambda: door.wait(30))
    with pytest.raises(NoAnswer):
        pending.result(0.05)
    assert not pending.is_over and not pending.wait(0.05) and threads.abandoned() == []
    door.set()
    assert pending.wait(10) and pending.is_over and pending.result(10) is True


def test_calls_one_after_the_other_share_a_thread_and_hanging_ones_take_one_each_up_to_the_limit(
    door: threading.Event,
) -> None:
    threads = CallThreads("few", max_threads=3)
    assert len({threads.call("ident", threading.get_ident, limit_s=10) for _ in range(20)}) == 1
    num_before = threading.active_count()
    hanging = [threads.begin("the door", lambda: door.wait(30)) for _ in range(20)]
    assert threading.active_count() == num_before + 2
    made: list[str] = []
    with pytest.raises(NoAnswer, match="it has not begun, because every thread has a call that hangs"):
        threads.call("a late one", lambda: made.append("late"), limit_s=0.05)
    door.set()
    assert all(pending.result(10) for pending in hanging)
    assert threads.call("the next one", lambda: "next", limit_s=10) == "next"
    assert made == [], "nobody waited for it any longer when a thread was free"


def test_one_thread_makes_calls_in_the_order_in_which_they_come() -> None:
    threads, made = CallThreads("one", max_threads=1), []
    for number in range(50):
        threads.begin("a number", lambda number=number: made.append(number))
    threads.call("the last", lambda: None, limit_s=10)
    assert made == list(range(50))


def test_a_thread_is_named_after_the_call_that_it_makes(threads: CallThreads, door: threading.Event) -> None:
    assert threads.call("the hub", lambda: threading.current_thread().name, limit_s=10) == "test call: the hub"
    until(lambda: "test call: idle" in {thread.name for thread in threading.enumerate()})


def test_a_call_that_is_abandoned_ends_at_its_next_check_and_is_not_logged(
    threads: CallThreads, door: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def copy(check: Check) -> None:
        check()
        door.wait(30)
        check()

    pending = threads.begin_with_check("a copy", copy)
    with pytest.raises(NoAnswer):
        pending.result(0.05)
    pending.abandon()
    door.set()
    with pytest.raises(Abandoned):
        pending.result(10)
    assert caplog.text == ""


def test_a_call_with_a_check_that_is_abandoned_before_it_begins_is_made_all_the_same(door: threading.Event) -> None:
    threads, seen = CallThreads("one", max_threads=1), []

    def write(check: Check) -> None:
        seen.append("opened")
        try:
            check()
            seen.append("written")
        finally:
            seen.append("closed")

    threads.begin("the door", lambda: door.wait(30))
    pending = threads.begin_with_check("a checkpoint", write)
    pending.abandon()
    door.set()
    assert pending.wait(10) and seen == ["opened", "closed"]


@pytest.mark.parametrize("is_abandoned", [True, False])
def test_an_exception_that_comes_late_is_logged_once(
    threads: CallThreads, door: threading.Event, caplog: pytest.LogCaptureFixture, is_abandoned: bool
) -> None:
    caplog.set_level(logging.DEBUG if is_abandoned else logging.INFO)

    has_begun = threading.Event()

    def fail() -> None:
        has_begun.set()
        door.wait(30)
        raise ConnectionError("no route")

    pending = threads.begin("the store", fail)
    assert has_begun.wait(10)
    if is_abandoned:
        pending.abandon()
    else:
        with pytest.raises(NoAnswer):
            pending.result(0.05)
        pending.abandon()
    door.set()
    until(lambda: "the store failed" in caplog.text)
    pending.abandon()
    assert caplog.text.count("after its caller stopped waiting: ConnectionError: no route") == 1


def test_an_exception_that_is_waited_for_is_not_logged(threads: CallThreads, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(KeyError):
        threads.call("a look-up", lambda: {}["missing"], limit_s=10)
    assert caplog.text == ""


def test_an_idle_thread_holds_neither_arguments_nor_results(threads: CallThreads) -> None:
    class Block: ...

    blocks = [Block()]
    known = weakref.ref(blocks[0])
    threads.call("itself", blocks.pop, limit_s=10)
    gc.collect()
    assert known() is None


def test_the_thread_has_dropped_the_arguments_when_the_caller_continues(
    threads: CallThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Block: ...

    finish = PendingCall.finish
    monkeypatch.setattr(PendingCall, "finish", lambda pending: (finish(pending), time.sleep(0.1)))
    for _ in range(3):
        block = Block()
        known = weakref.ref(block)
        call = partial(lambda block: None, block)
        del block
        pending = threads.begin("a call", call)
        del call
        pending.result(10)
        assert known() is None


@pytest.mark.processes
@pytest.mark.parametrize("blocked", [BLOCKED_SIGNALS, frozenset()])
def test_what_a_call_starts_has_the_signal_mask_of_its_thread(blocked: frozenset[signal.Signals]) -> None:
    def mask() -> str:
        return subprocess.run(
            ["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True, check=True, timeout=10
        ).stdout

    found = int(CallThreads("test", blocked_signals=blocked).call("grep", mask, limit_s=20).split()[1], 16)
    assert {signum for signum in BLOCKED_SIGNALS if found >> (signum - 1) & 1} == blocked
    assert BLOCKED_SIGNALS == ENDING_SIGNALS | stacks.HELD_BACK


@pytest.mark.processes
def test_time_in_which_the_process_is_stopped_does_not_count() -> None:
    """As after Ctrl-Z and fg, or when a laptop wakes."""
    code = """
import time
from verl_like.context import current
from verl_like.call_threads import CallThreads
def call():
    print("begun", flush=True)
    time.sleep(0.8)
    return "answered"
print(current(CallThreads).call("a nap", call, limit_s=3), flush=True)
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


@pytest.mark.processes
def test_a_call_that_hangs_does_not_delay_the_interpreters_exit() -> None:
    code = """
import time
from verl_like.context import current
from verl_like.call_threads import RayThreads, CallThreads
for threads in (current(CallThreads), current(RayThreads)):
    threads.begin("for ever", lambda: time.sleep(600))
print("ends")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("ends\n", "")
