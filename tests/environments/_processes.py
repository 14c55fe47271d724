"""Environments' processes in tests: start them, find those that they start, and wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.environments.test_contracts import Playing
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings

LIMIT_S = 20.0


@contextmanager
def playing(folder: Path, source: str, name: str = "", **settings: Any) -> Iterator[Playing]:
    """Start processes for a file with this source, of tools if there is no name, load it, and end them."""
    (file := folder / "user.py").write_text(source)
    chosen = {"path": f"{file}:{name}"} if name else {"tools": str(file)}
    processes = EnvironmentProcesses(ProcessSettings(**chosen, **settings))
    processes.start()
    try:
        processes.load()
        yield Playing(processes)
    finally:
        processes.close()


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def comes_true(condition: Callable[[], object], *, within_s: float = LIMIT_S) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
