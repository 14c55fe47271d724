"""Processes that the fork server forks are those that the raylet wants, or are started in the plain way."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from verl_like.controller import ray_start
from verl_like.controller.fork_server import server as server_module
from verl_like.controller.fork_server import setup_worker
from verl_like.controller.fork_server.setup_worker import CONTEXT, REFUSED_VARIABLE, SOCKET_VARIABLE, forked
from verl_like.controller.fork_server.start import fork_server
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE, heartbeat_folder
from verl_like.watchdog.deadlines import Deadlines
from verl_like.watchdog.starting import StartingProcesses
from verl_like.watchdog.watch import Watch

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
OF_RAY = {"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": "1"}
# Writes what a process can see of itself, and waits until the file next to it is removed.
PROGRAM = """
import json, os, random, resource, sys, time
import numpy, ray
from pathlib import Path
found = {
    "words": sys.argv, "folder": os.getcwd(), "variables": dict(os.environ), "path": sys.path[0],
    "threads": len(os.listdir("/proc/self/task")),
    "draws": [random.random(), numpy.random.random(), ray.UniqueID.from_random().hex()],
    "limits": [resource.getrlimit(resource.RLIMIT_NOFILE), Path("/proc/self/oom_score_adj").read_text()],
    "group": os.getpgrp(), "id": os.getpid(), "main": __name__, "modules": list(sys.modules),
}
out = Path(sys.argv[1])
out.with_suffix(".part").write_text(json.dumps(found))
out.with_suffix(".part").rename(out)
print("printed", flush=True)
while out.exists():
    time.sleep(0.02)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(os, "environ", {**os.environ, "OMP_NUM_THREADS": "1"})  # pytest changes a variable in a test
    return dict(os.environ)


@pytest.fixture
def server(environment: dict[str, str]) -> Iterator[str]:
    """Yield the name of a server's socket."""
    with fork_server(environment, calls=[["decimal"]], calls_with_ray=[["fractions"], ["ray.dag"]]) as variables:
        yield variables[SOCKET_VARIABLE]


def forked_by(process: psutil.Process) -> list[psutil.Process]:
    return [child for each in process.children() if each.name() == "fork server" for child in each.children()]


def report(out: Path) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_S
    while not out.exists():
        assert time.monotonic() < deadline, "the program did not run"
        time.sleep(0.02)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.processes
def test_a_forked_process_is_what_the_raylet_would_have_started(
    server: str, program: Path, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    wanted = {**environment, **OF_RAY, NAME_VARIABLE: "worker rank 0"}
    outs = [tmp_path / "0.json", tmp_path / "1.json"]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = files[0] - 1, files[1]  # after the start of the server, as ray.init changes the limit
    resource.setrlimit(resource.RLIMIT_NOFILE, lowered)
    assert [forked(server, [str(program), str(out)], wanted) for out in outs] == ["", ""]
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    first, second = (report(out) for out in outs)
    assert first["words"] == [str(program), str(outs[0])] and first["path"] == str(tmp_path)
    assert first["variables"] == wanted and first["folder"] == str(folder)
    assert first["main"] == "__main__" and {"decimal", "fractions"} <= set(first["modules"])
    assert first["limits"] == [[*lowered], Path("/proc/self/oom_score_adj").read_text()]
    assert first["threads"] == 1 and first["group"] == first["id"] != second["id"]
    for own, others in zip(first["draws"], second["draws"], strict=True):
        assert own != others, "two processes share a random state"
    for out in outs:
        out.unlink()


@pytest.mark.processes
def test_other_values_of_variables_that_libraries_read_are_refused(
    server: str, program: Path, environment: dict[str, str]
) -> None:
    wanted = {**environment, **OF_RAY, "OMP_NUM_THREADS": "2", "NEW": "1"}
    assert forked(server, [str(program)], wanted) == "other values of NEW, OMP_NUM_THREADS are wanted"


@pytest.mark.processes
def test_a_process_of_another_ray_is_refused(
    server: str, program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    assert forked(server, [str(program), str(out)], {**environment, **OF_RAY}) == ""
    assert forked(server, [str(program)], {**environment, **OF_RAY, "RAY_RAYLET_PID": "2"}) == "another Ray wants it"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=[99], daemon=True).start()", "a thread"),
        ("raise OSError('no such library ' + 9000 * 'x')", "no such library"),
        ("import ray; ray.UniqueID.from_random()", "the same random ids"),
    ],
)
def test_a_server_whose_libraries_cannot_be_shared_forks_nothing(
    source: str, why: str, program: Path, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_library.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with fork_server(environment, calls=[["a_library"]], calls_with_ray=[]) as variables:
        assert why in forked(variables[SOCKET_VARIABLE], [str(program)], {**environment, **OF_RAY})


@pytest.mark.processes
@pytest.mark.parametrize("ends", ["the server", "the driver's block"])
def test_forked_processes_end_with_their_server(
    ends: str, program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    with fork_server(environment, calls=[], calls_with_ray=[]) as variables:
        name = variables[SOCKET_VARIABLE]
        assert forked(name, [str(program), str(out)], {**environment, **OF_RAY}) == ""
        [process] = [child for child in forked_by(psutil.Process()) if child.pid == report(out)["id"]]
        if ends == "the server":
            process.parent().kill()  # type: ignore[union-attr]
            psutil.wait_procs([process], timeout=TIMEOUT_S)
            assert not process.is_running()
            assert "the fork server" in forked(name, [str(program)], {**environment, **OF_RAY})
    assert not process.is_running()


@pytest.mark.processes
def test_the_watchdog_knows_a_forked_process_by_its_name_although_its_title_changes(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    folder, out = heartbeat_folder(f"forked-{os.getpid()}"), tmp_path / "out.json"
    titled = "import ray._raylet\nray._raylet.setproctitle('ray::IDLE')\nout.with_suffix('.titled').touch()\n"
    program.write_text(PROGRAM.replace("while", f"while not out.with_suffix('.go').exists(): pass\n{titled}while", 1))
    run = {FOLDER_VARIABLE: str(folder), NAME_VARIABLE: "worker rank 3"}
    starting = StartingProcesses(folder)
    with fork_server(environment, calls=[], calls_with_ray=[]) as variables:
        name = variables[SOCKET_VARIABLE]
        assert forked(name, [str(program), str(out)], {**environment, **run, **OF_RAY}) == ""
        pid = report(out)["id"]
        assert starting.find() == {pid: "worker rank 3"}
        out.with_suffix(".go").touch()
        while not out.with_suffix(".titled").exists():
            time.sleep(0.02)
        assert psutil.Process(pid).cmdline()[0].startswith("ray::IDLE")
        assert starting.find() == StartingProcesses(folder).find() == {pid: "worker rank 3"}


@pytest.mark.processes
def test_a_process_that_another_of_its_name_has_replaced_has_not_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of the fork server ends as soon as the server has forked the worker."""
    first, second = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    try:
        watch = Watch(heartbeat_folder("nothing"), driver=os.getpid(), deadlines=Deadlines(60.0))
        found: dict[int, str] = {first.pid: "worker rank 0"}
        monkeypatch.setattr(StartingProcesses, "find", lambda self: dict(found))
        assert watch.check() == ({}, [])
        first.kill()
        first.wait()
        found.clear()
        found[second.pid] = "worker rank 0"
        assert watch.check() == ({}, [])
        second.kill()
        second.wait()
        found.clear()
        assert [watched.pid for watched in watch.check()[1]] == [second.pid]
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


# --- the program that the raylet starts


def arguments(*, python: str = sys.executable, **context: Any) -> list[str]:
    given = {"command_prefix": [], "env_vars": {"A": "1"}, "py_executable": python, **context}
    return ["/ray/default_worker.py", "--node-id=1", "--language=PYTHON", CONTEXT + json.dumps(given)]


def test_a_worker_is_started_with_its_words_and_variables() -> None:
    found = setup_worker.words_and_variables(arguments())
    assert found == ([sys.executable, "/ray/default_worker.py", "--node-id=1"], {"A": "1"})


@pytest.mark.parametrize(
    "given",
    [
        arguments(command_prefix=["cd /tmp &&"]),
        arguments(override_worker_entrypoint="/other.py"),
        arguments(env_vars={"A": "${PATH}:/x"}),
        arguments(python="conda run python"),
        ["/ray/default_worker.py", "--language=PYTHON"],
        [*arguments()[:2], "--language=JAVA", arguments()[-1]],
    ],
)
def test_what_only_rays_own_program_can_start_is_left_to_it(given: list[str]) -> None:
    assert setup_worker.words_and_variables(given) is None


@pytest.mark.processes
def test_a_worker_is_started_in_the_plain_way_if_no_server_answers(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.with_suffix(".log").touch()
    given = json.dumps({"py_executable": sys.executable, "env_vars": {SOCKET_VARIABLE: "no-server"}})
    command = [sys.executable, setup_worker.__file__, str(program), str(out), "--language=PYTHON", CONTEXT + given]
    started: Callable[[], subprocess.Popen[bytes]] = lambda: subprocess.Popen(command, cwd=ROOT)  # noqa: E731
    with started() as process:
        found = report(out)
        assert found["id"] == process.pid and found["words"] == [str(program), str(out)]
        assert "Connection refused" in found["variables"][REFUSED_VARIABLE]
        out.unlink()


def test_ray_starts_python_processes_by_our_program() -> None:
    rays = Path(ray_start.node.__file__).parent / "workers/setup_worker.py"
    assert rays.is_file() and Path(setup_worker.__file__).name == rays.name
    changed = ray_start.with_own_setup(f"--python_worker_command=python {rays} default_worker.py")
    assert changed == f"--python_worker_command=python {setup_worker.__file__} default_worker.py"
    other = f"--java_worker_command=python {rays}"
    assert ray_start.with_own_setup(other) == other


def test_the_clients_of_other_users_get_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert server_module._is_own(ours)
        monkeypatch.setattr(os, "getuid", lambda: 123456)
        assert not server_module._is_own(ours)
