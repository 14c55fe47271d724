"""How a server of Ray ended, as the message on its loss says."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from verl_like.controller.cluster import Health

pytestmark = pytest.mark.processes
# The first thread ends, by which the process is a zombie; another one lives on for a while, as those of a process do
# that is killed on a busy machine.
OUTLIVED = """
import ctypes, os, signal, threading, time

def end():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=end).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def as_a_zombie(pid: int) -> psutil.Process:
    process, deadline = psutil.Process(pid), time.monotonic() + 20
    while process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_the_signal_is_named_even_if_some_threads_end_later_than_the_first() -> None:
    with subprocess.Popen([sys.executable, "-c", OUTLIVED]) as server:
        trouble = Health().trouble({"GCS": as_a_zombie(server.pid)})
    assert trouble == f"Ray's GCS (process {server.pid}) was ended by SIGKILL"


def test_a_server_that_another_caller_has_reaped_has_the_code_that_this_caller_knows() -> None:
    server = psutil.Process(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"]).pid)
    codes = iter([None, None, 7])
    server.wait(timeout=20)
    trouble = Health().trouble({"GCS": server}, {"GCS": lambda: next(codes)})
    assert trouble == f"Ray's GCS (process {server.pid}) has ended with status 7"
    assert Health().trouble({"GCS": server}).endswith("has ended, or was killed")
