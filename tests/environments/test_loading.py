"""How a user's file is loaded: its folder, variables, name, interpreter and prints; and every error says what to do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import _files
from tests.environments._processes import comes_true, playing
from verl_like.environments import nursery_start
from verl_like.environments.nursery_start import nursery_environment
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings

pytestmark = pytest.mark.processes


def refused(path: str, **settings: str) -> str:
    """Return why a file is not loaded."""
    processes = EnvironmentProcesses(ProcessSettings(path=path, **settings))
    try:
        processes.start()
    except ValueError as error:
        return str(error)
    with pytest.raises(ValueError) as found:
        processes.load()
    processes.close()
    return str(found.value)


REPORTER = """
import os, sys
import neighbour

class Reporter:
    def reset(self, **row):
        return "|".join([os.getcwd(), __name__, neighbour.VALUE, os.environ["OF_THE_RUN"], sys.executable])

    def step(self, text):
        return "fine", 0.0, True
"""


def test_a_file_sees_its_folder_the_variables_and_the_working_directory_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 'next to it'\n")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    monkeypatch.setenv("OF_THE_RUN", "set")
    with playing(tmp_path, REPORTER, "Reporter") as played:
        _, found = played.reset()
    seen = found["messages"][-1]["content"].split("|")
    assert seen == [str(tmp_path / "else"), "verl_like_user_user", "next to it", "set", sys.executable]


def test_a_relative_path_begins_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user.py").write_text(_files.PLAIN)
    monkeypatch.chdir(tmp_path)
    processes = EnvironmentProcesses(ProcessSettings(path="user.py:Echo"))
    processes.start()
    assert processes.load().kind
    processes.close()
    assert f"missing.py is no file; it was looked for at {tmp_path}/missing.py" in refused("missing.py:Echo")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", r"cannot be loaded: SyntaxError: .*line 1"),
        ("import no_such_package", r"has no module 'no_such_package'. Install its package there, or set"),
        ("import sys; sys.exit(3)", r"cannot be loaded: SystemExit: 3"),
        ("class Env:\n    def __init__(self): exit(2)\n    def reset(self): pass", r"SystemExit: 2"),
        ("import os; print('no licence'); os._exit(3)", r"ended with code 3. It printed last:\nno licence"),
        ("import os; os.kill(os.getpid(), 9)", r"ended with code -9"),
        ("Other = 1\nclass Known: pass", r"has no 'Env'; it has Known"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "user.py").write_text(source)
    assert re.search(message, refused(f"{tmp_path}/user.py:Env"))


def test_a_path_without_a_name_or_of_another_kind_of_file_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "user.txt").write_text(_files.PLAIN)
    (tmp_path / "user.py").write_text(_files.PLAIN)
    assert "expected FILE:NAME, such as game.py:Game" in refused(f"{tmp_path}/user.py")
    assert "is no Python file; expected a name that ends with .py" in refused(f"{tmp_path}/user.txt:Echo")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make an interpreter without packages, as `python3 -m venv` does."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    return str(folder / "bin" / "python")


def test_another_interpreter_without_packages_runs_an_environment(tmp_path: Path, bare_python: str) -> None:
    source = """
import sys

class Env:
    def reset(self, **row):
        found = []
        for name in ("verl_like", "torch", "numpy"):
            try:
                __import__(name)
                found.append(name)
            except ImportError:
                pass
        return f"{sys.executable} {found}"

    def step(self, text):
        return "fine", 0.5, True
"""
    with playing(tmp_path, source, "Env", python=bare_python) as played:
        process, found = played.reset()
        assert found["messages"][-1]["content"] == f"{bare_python} []"
        assert played.step(process, "x")["reward"] == 0.5 and played.reward(process) == 0.5


def test_a_daemon_ends_in_another_interpreter_too(tmp_path: Path, bare_python: str) -> None:
    pid_file = tmp_path / "pid"
    with playing(tmp_path, _files.WRECK, "Wreck", python=bare_python) as played:
        process, _ = played.reset(do="daemon", number=1, file=str(pid_file))
        for _ in range(2):
            played.step(process, "x")
        played.processes.end(process)
        daemon = int(pid_file.read_text())
        assert comes_true(lambda: not Path(f"/proc/{daemon}").exists(), within_s=5.0)


def test_a_package_that_the_interpreter_lacks_is_named_with_the_interpreter(tmp_path: Path, bare_python: str) -> None:
    (tmp_path / "user.py").write_text("import numpy\n")
    found = refused(f"{tmp_path}/user.py:Env", python=bare_python)
    assert f"the interpreter {bare_python} has no module 'numpy'. Install its package there" in found


def test_what_is_no_interpreter_says_so(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(_files.PLAIN)
    (broken := tmp_path / "broken").write_text("#!/bin/sh\necho no such library >&2\nexit 5\n")
    broken.chmod(0o755)
    (text := tmp_path / "text").write_text("text\n")
    text.chmod(0o755)
    path = f"{tmp_path}/user.py:Echo"
    assert "cannot be started: No such file or directory; expected the path" in refused(path, python="/nowhere/python")
    assert "cannot be started: Permission denied; expected" in refused(path, python=str(tmp_path))
    assert "is no program; expected the path of a Python interpreter" in refused(path, python=str(text))
    found = refused(path, python=str(broken))
    assert "ended with code 5 before it loaded" in found and found.endswith("It printed last:\nno such library")
    assert "ended with code 0 before it loaded" in refused(path, python="/bin/true")


def test_an_interpreter_that_is_too_old_says_so(tmp_path: Path) -> None:
    """The version is checked before anything is imported that an old interpreter could not read."""
    program = f"""
import runpy, sys
sys.version_info = (3, 8, 1)
sys.path.insert(0, {str(nursery_start.FOLDER)!r})
runpy.run_path({str(nursery_start.FOLDER)!r}, run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "is Python 3.8; environments need Python 3.10 or newer." in done.stderr


def test_variables_that_name_our_folders_do_not_reach_another_interpreter() -> None:
    ours = {"PYTHONPATH": "/ours", "PYTHONHOME": "/ours", "HOME": "/home"}
    assert nursery_environment("/other/python", ours) == {"HOME": "/home"}
    same = nursery_environment("", ours)
    assert set(sys.path) - {""} <= set(same["PYTHONPATH"].split(os.pathsep)) and same["HOME"] == "/home"


def test_prints_reach_the_log_up_to_a_limit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nursery_start, "MAX_PRINTED", 10_000)
    with playing(tmp_path, "print('loading')\n" + _files.WRECK, "Wreck") as played:
        process, _ = played.reset(do="print", number=1)
        for _ in range(2):
            played.step(process, "x")
    printed = capfd.readouterr().err
    assert printed.startswith("loading\nxxx") and len(printed) < 11_000
    assert printed.count("[an environment has printed 10000 bytes; the rest is dropped]") == 1


def test_usr1_prints_the_stack_of_an_episodes_process_and_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = """
import os, time

class Env:
    def reset(self, **row):
        return str(os.getpid())

    def step(self, text):
        time.sleep(2)
        return "fine", 1.0, True
"""
    with playing(tmp_path, source, "Env") as played:
        process, found = played.reset()
        pid = int(found["messages"][-1]["content"])
        turn = {"text": "x", "message": {"role": "assistant", "content": "x"}}
        call = played.processes.call(process, {"do": "step", "episode": 1, "turn": turn}, limit_s=20.0)
        played.processes.poll(0.5)
        os.kill(pid, signal.SIGUSR1)
        assert played.wait({call})[call].failure is None
    assert 'user.py", line 9 in step' in capfd.readouterr().err
