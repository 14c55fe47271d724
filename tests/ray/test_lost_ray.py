"""Ray's own servers stopped or killed under a driver, and signals to all: one verdict, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests._left_behind import leaked_shared_memory, still_running
from tests.ray._driver import LAST_S, PART_S, STOPPED_S
from tests.ray.conftest import ROOT
from verl_like.controller import cluster

START_S = 90.0
TEARDOWN_S = 2 * PART_S + cluster.KILLED_S


class Driver:
    """A running ``tests.ray._driver`` and all processes that belong to it."""

    def __init__(self, what: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ray._driver", what],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.members: list[psutil.Process] = []
        self.servers: dict[str, psutil.Process] = {}

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", line + self.process.communicate(timeout=START_S)[1]
        self.members = psutil.Process(self.process.pid).children(recursive=True)
        self.servers = cluster.servers_among(self.members)

    def ended(self, *, timeout_s: float) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def end(self) -> None:
        for process in [psutil.Process(self.process.pid)] if self.process.poll() is None else []:
            process.kill()
        for member in self.members:
            if member.is_running():
                member.kill()
        self.process.wait(timeout=10)


@contextmanager
def driver(what: str) -> Iterator[Driver]:
    made = Driver(what)
    try:
        made.wait_ready()
        yield made
    finally:
        made.end()


def none_left(members: list[psutil.Process], *, within_s: float = 5.0) -> list[str]:
    deadline = time.monotonic() + within_s
    while (left := still_running(members)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


STOP, KILL = signal.SIGSTOP, signal.SIGKILL


@pytest.mark.parametrize(
    ("what", "server", "signum", "message"),
    [
        ("wait", "raylet", STOP, rf"Ray's raylet \(process \d+\) has been stopped for {STOPPED_S:.0f} s"),
        pytest.param("stream", "raylet", STOP, "Ray's raylet", marks=pytest.mark.nightly),
        pytest.param("put", "raylet", STOP, "Ray's raylet", marks=pytest.mark.slow),
        pytest.param(
            "wait",
            "GCS",
            STOP,
            rf"Ray's GCS \(process \d+\) has been stopped for {STOPPED_S:.0f} s",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "wait", "raylet", KILL, r"Ray's raylet \(process \d+\) was ended by SIGKILL", marks=pytest.mark.slow
        ),
        ("wait", "GCS", KILL, r"Ray's GCS \(process \d+\) was ended by SIGKILL"),
    ],
)
def test_a_server_that_is_gone_ends_the_run_with_one_line_and_leaves_nothing(
    what: str, server: str, signum: signal.Signals, message: str
) -> None:
    shared_memory = set(os.listdir("/dev/shm"))
    with driver(what) as run:
        time.sleep(1)
        started = time.monotonic()
        run.servers[server].send_signal(signum)
        status, out, err = run.ended(timeout_s=START_S)
        assert time.monotonic() - started < STOPPED_S + LAST_S + 5
        lines = [line for line in err.splitlines() if line]
        assert status == 1 and len(lines) == 1 and not out, err + out
        assert re.match(f"error: {message}", lines[0]) and "continues from the last checkpoint" in lines[0]
        assert none_left(run.members) == []
        assert leaked_shared_memory(shared_memory) == set()


@pytest.mark.slow
def test_ray_prints_nothing_among_our_messages() -> None:
    with driver("hear") as run:
        assert run.ended(timeout_s=START_S) == (0, "", "")


@pytest.mark.slow
def test_a_raylet_that_is_killed_in_the_middle_of_a_put_ends_the_run_and_leaves_nothing() -> None:
    """Ray's library itself may end the process then, before anybody could say why."""
    with driver("put") as run:
        time.sleep(1)
        run.servers["raylet"].kill()
        status, out, err = run.ended(timeout_s=START_S)
        assert status == 1 and len(err.splitlines()) <= 1 and not out
        assert none_left(list(run.servers.values())) == []


@pytest.mark.slow
def test_the_end_of_a_run_whose_raylet_is_stopped_takes_no_longer_than_promised() -> None:
    with driver("leave") as run:
        run.servers["raylet"].send_signal(STOP)
        started = time.monotonic()
        status, _, err = run.ended(timeout_s=START_S)
        assert time.monotonic() - started < 2 + TEARDOWN_S + 5, "two seconds pass before it begins"
        assert status == 0 and not err
        assert none_left(run.members) == []


@pytest.mark.slow
def test_signals_to_every_process_leave_ray_and_the_workers_to_the_driver() -> None:
    with driver("run_until_asked") as run:
        signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        for signum in signals:  # quickly: after a later one the driver stops at once
            os.killpg(run.process.pid, signum)
        for member in run.members:  # those that have left the group too
            for signum in signals:
                member.send_signal(signum)
        status, out, err = run.ended(timeout_s=START_S)
        assert status == 0 and out == "all were there until the end\n", err
        assert none_left(run.members) == []


def test_the_servers_end_with_a_driver_that_is_killed() -> None:
    with driver("wait") as run:
        workers = [member for member in run.members if "WorkerHost" in " ".join(member.cmdline())]
        assert len(workers) == 2
        run.process.kill()
        assert none_left([*workers, *run.servers.values()]) == []
