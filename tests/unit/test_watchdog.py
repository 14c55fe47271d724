"""The watchdog on real processes that hang in real ways."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from verl_like.context import current
from verl_like.telemetry.heartbeat import Heartbeat, heartbeat_folder, read_all
from verl_like.telemetry.ledger import Ledger
from verl_like.watchdog import guard
from verl_like.watchdog import watch as watch_module
from verl_like.watchdog.deadlines import Deadlines
from verl_like.watchdog.guard import watchdog
from verl_like.watchdog.processes import children
from verl_like.watchdog.sibling import Settings, Sibling
from verl_like.watchdog.watch import Watch

FLOOR_S = 1.5
# A worker that goes twice through the stage "update", and then does what a test wants.
WORKER = """
import sys, time, threading
from pathlib import Path
from verl_like.context import current
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.context import current
from verl_like.telemetry.ledger import Ledger, stage, waiting
current(Ledger).rest("wait/driver")
current(Heartbeat).start(Path(sys.argv[1]), sys.argv[2])
for _ in range(2):
    with stage("update"):
        time.sleep(0.1)
    time.sleep(1.1)
with stage("update"):
    print("at it", flush=True)
    exec(sys.argv[3])
time.sleep(60)
"""
HOLDS_THE_LOCK = "import ctypes; ctypes.PyDLL(None).usleep(50_000_000)"


class Heard:
    """What the watchdog said."""

    def __init__(self) -> None:
        self.stalls: list[tuple[str, bool]] = []
        self.deaths: dict[str, str] = {}
        self.never_called: list[str] = []
        self.notes: list[str] = []

    def stalled(self, text: str, *, is_certain: bool) -> None:
        self.stalls.append((text, is_certain))

    def noted(self, text: str) -> None:
        self.notes.append(text)

    def died(self, who: str, text: str) -> None:
        self.deaths[who] = text

    def died_at_start(self, who: str) -> None:
        self.never_called.append(who)


@contextmanager
def worker(folder: Path, who: str, does: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), who, does], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def until(claim: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    listener = Heard()
    run_id = f"test-{os.getpid()}"
    with watchdog(run_id, tmp_path / "stalls", listener, floor_s=FLOOR_S, ends=False):
        yield listener
    assert not heartbeat_folder(run_id).exists()


@pytest.fixture
def folder(heard: Heard) -> Path:
    return heartbeat_folder(f"test-{os.getpid()}")


@pytest.mark.processes
def test_who_holds_the_interpreter_lock_or_spins_is_named_and_who_waits_is_not(
    heard: Heard, folder: Path, tmp_path: Path
) -> None:
    with (
        worker(folder, "worker rank 0", "with waiting('peer', 'worker rank 1'): time.sleep(50)"),
        worker(folder, "worker rank 1", HOLDS_THE_LOCK),
        worker(folder, "worker rank 2", "while True: pass"),
    ):
        until(lambda: "rank 1 (" in str(heard.stalls) and "rank 2 (" in str(heard.stalls))
    reported = "".join(text for text, is_certain in heard.stalls if is_certain)
    assert "worker rank 1 (pid " in reported and "hangs in stage 'update'" in reported
    assert "Waiting meanwhile: worker rank 0 in 'update' for worker rank 1." in reported
    assert "worker rank 0 (pid" not in reported
    assert "uses no processor time" in reported and ("it uses 0." in reported or "it uses 1." in reported)
    written = sorted((tmp_path / "stalls").iterdir())[-1]
    assert (written / "verdict.txt").read_text().startswith("worker rank")
    stacks = (written / "stacks.txt").read_text()
    assert all(f"== {who}" in stacks for who in ("worker rank 0", "worker rank 1", "worker rank 2", "the driver"))
    assert "<module> (<string>" in stacks


@pytest.mark.processes
@pytest.mark.slow
def test_stopped_workers_are_named_at_rest_too_and_those_that_continue_are_not(heard: Heard, folder: Path) -> None:
    works = "for _ in range(500): time.sleep(0.1); current(Heartbeat).tick()"
    writes = "f = open('/dev/null', 'wb')\nwhile True: f.write(b'0' * 2**21); time.sleep(0.2)"
    with (
        worker(folder, "worker rank 0", works) as in_a_stage,
        worker(folder, "worker rank 1", "pass") as at_rest,
        worker(folder, "worker rank 2", "pass"),
        worker(folder, "worker rank 3", works),
        worker(folder, "worker rank 4", writes),
    ):
        for process in (in_a_stage, at_rest):
            assert process.stdout is not None and process.stdout.readline()
        time.sleep(0.2)
        for process in (in_a_stage, at_rest):
            process.send_signal(signal.SIGSTOP)
        until(lambda: "rank 0 (" in str(heard.stalls) and "rank 1 (" in str(heard.stalls))
        in_a_stage.send_signal(signal.SIGCONT)
        until(lambda: any("worker rank 0 continues" in note for note in heard.notes))
    reported = "".join(text for text, _ in heard.stalls)
    assert reported.count("is stopped by a signal (SIGSTOP)") >= 2
    assert not any(f"worker rank {rank} (pid" in reported for rank in (2, 3, 4))


@pytest.mark.processes
def test_a_worker_that_dies_leaves_its_stage_and_memory_and_a_killed_watchdog_a_successor(
    heard: Heard, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    until(siblings)
    time.sleep(0.5)
    [first] = siblings()
    os.kill(first, signal.SIGKILL)
    until(lambda: siblings() not in ([], [first]))
    assert "the watchdog's process has ended; another one is started" in caplog.text
    dies = "x = b'1' * 2**28; time.sleep(1.5); import os; current(Ledger).enter('sync'); os.kill(os.getpid(), 9)"
    with worker(folder, "worker rank 0", dies):
        until(lambda: heard.deaths)
    text = heard.deaths["worker rank 0"]
    assert "last seen in stage 'sync'" in text and "its memory went from" in text


@pytest.mark.processes
@pytest.mark.slow
def test_processes_that_wait_for_each_other_are_reported_once(heard: Heard, folder: Path, tmp_path: Path) -> None:
    with (
        worker(folder, "worker rank 0", "with waiting('peer', 'worker rank 1'): time.sleep(50)"),
        worker(folder, "worker rank 1", "with waiting('peer', 'worker rank 0'): time.sleep(50)"),
    ):
        until(lambda: heard.stalls, seconds=30.0)
        time.sleep(3.0)
    [(text, is_certain)] = heard.stalls
    assert is_certain and text.startswith("the run hangs, because every process waits for another one: worker rank ")
    assert len(list((tmp_path / "stalls").iterdir())) == 1


DRIVER = """
import sys
from pathlib import Path
from verl_like.context import current
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import stage
current(Heartbeat).start(Path(sys.argv[1]), "driver")
with stage("checkpoint"):
    print("at it", flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
@pytest.mark.parametrize("is_seen_dead", [True, False], ids=["seen-dead-before", "still-ending"])
def test_the_last_stage_of_a_driver_that_is_gone_is_reported_whatever_was_seen_of_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_seen_dead: bool
) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout is not None and driver.stdout.readline() == "at it\n"
        sibling = Sibling(
            Settings(folder=str(tmp_path), driver=driver.pid, stalls=str(tmp_path / "stalls"), floor_s=60, ends=True)
        )
        sibling._round()
        if is_seen_dead:
            driver.kill()
            driver.wait()
            sibling._round()
        sibling._report_driver_end()
        assert "has ended without a message, in stage 'checkpoint'" in capfd.readouterr().err
    finally:
        driver.kill()
        driver.wait()


def siblings() -> list[int]:
    found = []
    for process in children(os.getpid(), recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "verl_like.watchdog" in process.cmdline():
                found.append(process.pid)
    return found


@pytest.mark.processes
@pytest.mark.slow
def test_a_watchdog_that_is_stopped_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "SILENT_S", 6.5)
    with watchdog(f"stopped-{os.getpid()}", tmp_path, Heard(), floor_s=FLOOR_S, ends=False):
        until(siblings)
        time.sleep(0.5)
        [first] = siblings()
        os.kill(first, signal.SIGSTOP)
        until(lambda: siblings() not in ([], [first]))
    assert "was silent for" in caplog.text


def test_a_first_deadline_is_longer_and_time_that_the_machine_slept_does_not_count(tmp_path: Path) -> None:
    now = time.monotonic()
    watch = Watch(tmp_path, driver=os.getpid(), deadlines=Deadlines(floor_s=10.0), clock=lambda: now)
    current(Heartbeat).start(tmp_path, "this")
    try:
        current(Heartbeat).enter("checkpoint", now)
        for second in range(99):
            now += 1.0
            assert watch.check() == ({}, []), f"{second} s"
        now += 3.0
        assert watch.check() == ({os.getpid(): 100.0}, [])
        now += 3600.0  # a machine that slept
        assert watch.check() == ({}, [])
    finally:
        current(Heartbeat).stop()


def test_the_memory_of_a_process_that_is_ending_is_no_part_of_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dying process has no memory left before the kernel removes it, so the kernel reports 0."""
    now, known = time.monotonic(), watch_module.process_state
    watch = Watch(tmp_path, driver=os.getpid(), deadlines=Deadlines(floor_s=60.0), clock=lambda: now)
    current(Heartbeat).start(tmp_path, "this")
    try:
        for rss_bytes in (600, 609, 0):
            now += 1.0
            monkeypatch.setattr(
                watch_module, "process_state", lambda pid, rss=rss_bytes: replace(known(pid), rss_bytes=rss)
            )
            watch.check()
        assert [held for _, held in watch.processes[os.getpid()].memory] == [600, 609]
    finally:
        current(Heartbeat).stop()


@pytest.mark.processes
def test_a_process_that_waits_for_a_stopped_driver_is_not_reported_as_hung(tmp_path: Path) -> None:
    """Ctrl-Z stops the driver and all processes of its terminal; ``fg`` continues them."""
    now = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as driver:
        try:
            watch = Watch(tmp_path, driver=driver.pid, deadlines=Deadlines(floor_s=1.0), clock=lambda: now)
            current(Heartbeat).start(tmp_path, "this")
            current(Heartbeat).enter("update", now)
            driver.send_signal(signal.SIGSTOP)
            until(lambda: psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED)
            for _ in range(100):
                now += 1.0
                assert watch.check() == ({}, [])
            driver.send_signal(signal.SIGCONT)
            until(lambda: psutil.Process(driver.pid).status() != psutil.STATUS_STOPPED)
            for _ in range(10):
                now += 1.0
                assert watch.check() == ({}, [])
            now += 1.0
            assert watch.check() == ({os.getpid(): 10.0}, [])
        finally:
            current(Heartbeat).stop()
            driver.kill()


def test_a_run_continues_unwatched_if_there_is_no_space_for_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setattr(guard, "heartbeat_folder", lambda run_id: tmp_path / "a file/folder")
    with watchdog("full", tmp_path, Heard(), floor_s=FLOOR_S, ends=False):
        assert not siblings()
    assert "the watchdog is off: " in caplog.text


HOLDS_A_FOLDER = """
import sys, time
from pathlib import Path
from verl_like.watchdog.guard import make_and_lock
held = make_and_lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.processes
def test_leftovers_of_a_run_killed_with_its_watchdog_are_removed_at_the_next_start(tmp_path: Path) -> None:
    folders = [tmp_path / heartbeat_folder(name).name for name in ("killed", "alive", "of-something-else")]
    folders[2].mkdir()
    with ExitStack() as ends:
        for folder in folders[:2]:
            process = subprocess.Popen([sys.executable, "-c", HOLDS_A_FOLDER, str(folder)], stdout=subprocess.PIPE)
            ends.callback(process.communicate)
            ends.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            (folder / "1.heartbeat").touch()
            if folder is folders[0]:
                process.kill()
                process.wait(10)
        guard.remove_abandoned(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(folder.name for folder in folders[1:])
        assert (folders[1] / "1.heartbeat").exists()


def test_deadlines_are_learnt_from_whole_passes(tmp_path: Path) -> None:
    deadlines = Deadlines(floor_s=0.2)
    current(Heartbeat).start(tmp_path, "this")
    try:
        current(Heartbeat).enter("update", time.monotonic())
        time.sleep(0.1)
        current(Heartbeat).tick()
        deadlines.learn(read_all(tmp_path))
        assert deadlines.of("update") == 2.0 and not deadlines.is_learnt("update")
        with current(Heartbeat).waiting("all ranks"):
            time.sleep(0.3)  # is no silence of this process
        current(Heartbeat).enter("sync", time.monotonic())
        deadlines.learn(read_all(tmp_path))
        assert 0.5 <= deadlines.of("update") < 1.0 and deadlines.is_learnt("update")
        assert deadlines.of("checkpoint") == 2.0
    finally:
        current(Heartbeat).stop()


def test_threads_leave_their_own_visits_whichever_ends_first(tmp_path: Path) -> None:
    """A scorer host writes samples down while it scores: the end of the one is not the end of the other."""
    ledger = Ledger("wait/driver")
    current(Heartbeat).start(tmp_path, "scorer host 0")
    try:
        scoring = ledger.enter("reward", "scorer processes")
        writing = ledger.enter("wait/store", "a block")
        assert read_all(tmp_path)[0].waits_for == "a block"
        ledger.leave(writing)
        assert (ledger.stage, read_all(tmp_path)[0].waits_for) == ("reward", "scorer processes")
        writing = ledger.enter("wait/store", "a block")
        ledger.leave(scoring)
        assert ledger.stage == "wait/store"
        ledger.leave(writing)
        assert ledger.is_resting
    finally:
        current(Heartbeat).stop()


def test_a_heartbeat_shows_the_stage_around_a_wait(tmp_path: Path) -> None:
    ledger = Ledger()
    current(Heartbeat).start(tmp_path, "this")
    try:
        update = ledger.enter("update")
        wait = ledger.enter("wait/peer", "all ranks")
        [reading] = read_all(tmp_path)
        assert (reading.stage, reading.waits_for, reading.who) == ("update", "all ranks", "this")
        ledger.leave(wait)
        [reading] = read_all(tmp_path)
        assert (reading.stage, reading.waits_for) == ("update", "")
        ledger.leave(update)
        assert read_all(tmp_path)[0].stage == "idle"
    finally:
        current(Heartbeat).stop()
    assert not read_all(tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("why", ["ends", "cannot be started"])
def test_a_watchdog_that_ends_again_and_again_is_started_again_and_again(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_starts = 0

    def spawn(settings: Settings) -> subprocess.Popen[bytes]:
        nonlocal num_starts
        num_starts += 1
        if 1 < num_starts < 15 and why == "cannot be started":
            raise BlockingIOError(11, "Resource temporarily unavailable")
        message = json.dumps({"kind": "dead", "who": "worker rank 0", "text": "last seen in stage 'sync'"})
        command = ["true"] if num_starts < 15 else ["sh", "-c", f"echo '{message}'; cat"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(guard, "_spawn", spawn)
    monkeypatch.setattr(guard, "MAX_PAUSE_S", 0.01)
    heard = Heard()
    with watchdog(f"again-{os.getpid()}", tmp_path, heard, floor_s=FLOOR_S, ends=False):
        until(lambda: heard.deaths)
    assert num_starts == 15
