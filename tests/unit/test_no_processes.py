"""``pytest --no-processes`` fails a test that starts a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.tools.no_processes import NoProcesses

def pytest_configure(config):
    config.pluginmanager.register(NoProcesses())
"""
TESTS = """
import multiprocessing, subprocess, threading
from contextlib import suppress
import pytest

@pytest.fixture(scope="module")
def started():
    return subprocess.run(["true"])

def test_runs_a_command():
    subprocess.run(["true"])

def test_has_a_fixture_that_runs_a_command(started):
    pass

def test_catches_everything():
    with suppress(BaseException):
        subprocess.run(["true"])

def test_runs_a_command_in_a_thread():
    thread = threading.Thread(target=subprocess.run, args=(["true"],))
    thread.start()
    thread.join()

def test_starts_a_process_of_multiprocessing():
    multiprocessing.get_context("spawn").Process(target=print).start()

def test_starts_nothing():
    pass

def test_imports_what_starts_a_process():
    import asks_the_system
"""


@pytest.mark.processes
@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_test_that_starts_a_process_fails_however_it_starts_it(tmp_path: Path, num_processes: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "asks_the_system.py").write_text("import subprocess\nsubprocess.run(['/bin/true'])\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(num_processes)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "4 failed, 2 passed, 1 error" in ran.stdout.replace(", 1 warning", ""), ran.stdout + ran.stderr
    assert "test_catches_everything starts a process; mark it with pytest.mark.processes" in ran.stdout
