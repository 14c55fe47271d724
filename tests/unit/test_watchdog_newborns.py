"""Processes that Ray has started and that have no heartbeat yet: they are known from outside, and watched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from verl_like.controller.errors import WorkerError
from verl_like.controller.verdicts import Verdicts
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE, heartbeat_folder
from verl_like.watchdog import raylets as raylets_module
from verl_like.watchdog import sibling as sibling_module
from verl_like.watchdog.deadlines import Deadlines
from verl_like.watchdog.raylets import Raylets
from verl_like.watchdog.sibling import Settings, Sibling
from verl_like.watchdog.starting import StartingProcesses, marked_by
from verl_like.watchdog.watch import STOPPED_S, Watch

pytestmark = pytest.mark.processes

# A program that calls itself as Ray's does, and starts what it is given as Ray does: arguments and variables of each.
RAYLET = """
import ctypes, json, os, subprocess, sys
ctypes.CDLL(None).prctl(15, b"raylet", 0, 0, 0)
for arguments, variables in json.loads(sys.argv[1]):
    command = ["/bin/sh", "-c", "sleep 60; true", *arguments]
    child = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
sys.stdin.read()
"""


def context(variables: dict[str, str]) -> str:
    """Return the arguments that Ray passes to the program that becomes a worker with these variables."""
    return f"--serialized-runtime-env-context={json.dumps({'command_prefix': [], 'env_vars': variables})}"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[list[tuple[list[str], dict[str, str]]]], list[int]]]:
    """Starts children of a raylet; returns their ids."""
    raylets: list[subprocess.Popen[str]] = []

    def start(children: list[tuple[list[str], dict[str, str]]]) -> list[int]:
        raylet = subprocess.Popen(
            [sys.executable, "-c", RAYLET, json.dumps(children)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        raylets.append(raylet)
        assert raylet.stdout is not None
        pids = [int(raylet.stdout.readline()) for _ in children]
        while not all(psutil.Process(pid).name() == "sh" and psutil.Process(pid).children() for pid in pids):
            time.sleep(0.01)  # until each has been replaced by its program
        return pids

    yield start
    for raylet in raylets:
        for process in [*psutil.Process(raylet.pid).children(recursive=True), psutil.Process(raylet.pid)]:
            process.kill()
        raylet.communicate(timeout=10)


@pytest.fixture
def folder() -> Path:
    return heartbeat_folder(f"starting-{os.getpid()}")


def test_workers_are_known_by_their_variables_from_the_program_on_that_becomes_them(
    folder: Path, started: Callable[[list[tuple[list[str], dict[str, str]]]], list[int]]
) -> None:
    run, of_another = {FOLDER_VARIABLE: str(folder)}, {FOLDER_VARIABLE: f"{folder}0", NAME_VARIABLE: "worker rank 8"}
    pids = started(
        [
            ([], {**run, NAME_VARIABLE: "worker rank 0"}),
            (["setup_worker.py", context({**run, NAME_VARIABLE: "worker rank 1"})], run),
            (["default_worker.py"], run),
            (["runtime_env/agent/main.py"], run),
            (["dashboard/agent.py"], run),
            ([], of_another),
            (["setup_worker.py", "--serialized-runtime-env-context={}"], {}),
        ]
    )
    found = {
        pids[0]: "worker rank 0",  # and not what it has started, which has its variables too
        pids[1]: "worker rank 1",
        pids[2]: "a process that Ray is starting",
        pids[3]: "Ray's runtime-env agent",
    }
    assert StartingProcesses(folder).find() == found
    assert StartingProcesses(folder.with_name(f"{folder.name}.0123abcd")).find() == found, (
        "the watchdog of another node"
    )
    assert set(pids[:5]) <= set(marked_by(folder)) and not {*pids[5:], os.getpid()} & set(marked_by(folder))


def test_a_process_that_starts_or_ends_between_two_checks_is_seen(
    folder: Path, started: Callable[[list[tuple[list[str], dict[str, str]]]], list[int]]
) -> None:
    """A check does not read processes again that it knows to be other programs."""
    starting = StartingProcesses(folder)
    assert starting.find() == {}
    [pid] = started([([], {FOLDER_VARIABLE: str(folder), NAME_VARIABLE: "worker rank 0"})])
    assert starting.find() == {pid: "worker rank 0"}
    os.kill(pid, signal.SIGKILL)
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert starting.find() == {}


def test_a_newborn_that_is_stopped_or_killed_is_noticed_and_one_with_a_heartbeat_is_none(
    folder: Path, started: Callable[[list[tuple[list[str], dict[str, str]]]], list[int]]
) -> None:
    now = time.monotonic()
    watch = Watch(folder, driver=os.getpid(), deadlines=Deadlines(floor_s=0.1), clock=lambda: now)
    variables = {FOLDER_VARIABLE: str(folder)}
    first, second = started([([], {**variables, NAME_VARIABLE: f"worker rank {rank}"}) for rank in (0, 1)])
    folder.mkdir()
    try:
        for _ in range(20):  # it may load for as long as it likes
            now += 3.0
            assert watch.check() == ({}, [])
        assert {watched.who for watched in watch.processes.values()} == {"worker rank 0", "worker rank 1"}
        os.kill(first, signal.SIGSTOP)
        while psutil.Process(first).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        watch.check()
        now += STOPPED_S / 2
        watch.check()
        now += STOPPED_S / 2
        assert watch.check() == ({first: STOPPED_S}, [])
        os.kill(second, signal.SIGKILL)
        while psutil.Process(second).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        now += 1.0
        [dead] = watch.check()[1]
        assert (dead.who, dead.stage) == ("worker rank 1", "start")
        (folder / f"{first}.heartbeat").touch()
        assert StartingProcesses(folder).find() == {}
    finally:
        (folder / f"{first}.heartbeat").unlink(missing_ok=True)
        folder.rmdir()


def test_a_process_without_a_heartbeat_that_says_no_longer_who_it_is_has_not_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two programs the kernel shows no variables."""
    found = {os.getpid(): "worker rank 0"}
    monkeypatch.setattr(StartingProcesses, "find", lambda self: found)
    watch = Watch(tmp_path, driver=os.getpid(), deadlines=Deadlines(floor_s=0.1))
    watch.check()
    assert [watched.who for watched in watch.processes.values()] == ["worker rank 0"]
    found = {}
    assert watch.check() == ({}, [])


def test_a_death_that_ray_misses_is_reported_if_no_other_process_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = {os.getpid(): "worker rank 0"}
    monkeypatch.setattr(StartingProcesses, "find", lambda self: alive)
    settings = Settings(folder=str(tmp_path), driver=os.getpid(), stalls=str(tmp_path), floor_s=60, ends=False)
    sibling = Sibling(settings)
    message: list[str] = []
    monkeypatch.setattr(sibling, "_send", lambda kind, **what: message.append(kind))
    with subprocess.Popen(["sleep", "60"]) as process:
        alive[process.pid] = "worker rank 1"
        sibling._watch.remember_starting()  # it lives for less than a round
        process.kill()
        process.wait(10)
    sibling._round()
    assert message.count("dead") == 1 and "died_at_start" not in message
    alive[os.getppid()] = "worker rank 1"  # Ray has started another
    monkeypatch.setattr(sibling_module, "REPLACED_S", 0.0)
    sibling._round()
    assert "died_at_start" not in message
    del alive[process.pid]
    sibling._unreplaced["worker rank 2"] = time.monotonic()
    sibling._round()
    assert message.count("died_at_start") == 1


@pytest.mark.parametrize("is_start", [True, False])
def test_a_start_ends_where_a_process_died_before_its_first_call(is_start: bool) -> None:
    verdicts = Verdicts()
    verdicts.expect(acts=False)
    verdicts.check(is_start=True)
    verdicts.died("worker rank 1", "last seen in stage 'start', 2 s after it began")
    verdicts.died_at_start("worker rank 1")
    if is_start:
        with pytest.raises(WorkerError, match=r"^worker rank 1 died while it was being started, last seen in stage"):
            verdicts.check(is_start=True)
    verdicts.check()
    verdicts.expect(acts=False)
    verdicts.check(is_start=True)


def test_the_end_of_a_nodes_watchdog_ends_what_is_left_of_the_run_there_and_nothing_else(tmp_path: Path) -> None:
    """As where the node's raylet is stopped, and ends none of them."""
    run_id = f"left-{os.getpid()}"
    code = (
        f"from verl_like.watchdog.node import NodeWatchdog; NodeWatchdog('{run_id}.node', '{tmp_path}', 60.0).close()"
    )
    with ExitStack() as started:
        left, other = (
            started.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", "import time; time.sleep(50)"],
                    env={**os.environ, FOLDER_VARIABLE: str(heartbeat_folder(run))},
                )
            )
            for run in (run_id, f"{run_id}-another")
        )
        started.callback(other.kill)
        started.callback(left.kill)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        assert left.wait(10) == -signal.SIGKILL
        assert other.poll() is None


def test_a_stopped_raylet_is_named_once_each_time_it_is_stopped(
    started: Callable[[list[tuple[list[str], dict[str, str]]]], list[int]],
) -> None:
    pids, raylets = started([([], {}), ([], {})]), Raylets()
    raylet = psutil.Process(psutil.Process(pids[0]).ppid())
    for _ in range(2):
        raylet.suspend()
        while raylet.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert raylets.trouble(pids, 0.0) == "" and raylets.trouble(pids, raylets_module.STOPPED_S - 0.1) == ""
        found = raylets.trouble(pids, raylets_module.STOPPED_S)
        assert found.startswith(f"Ray's raylet (process {raylet.pid} on ") and f"kill -CONT {raylet.pid}" in found
        assert raylets.trouble(pids, 100.0) == ""
        raylet.resume()
        while raylet.status() == psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert raylets.trouble(pids, 101.0) == ""
