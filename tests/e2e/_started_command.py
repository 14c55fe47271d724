"""A command of ours in its own process, started as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests._left_behind import still_running

ROOT = Path(__file__).parents[2]


def wait_for(what: str, is_true: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.1)


class StartedCommand:
    """A command, with every process that belongs to it.

    Args:
        words: the command line after ``verl-like``.
        log: file of its output.
        moment: when it gets a signal, in the format of ``_signalled.py``; empty for never.
    """

    def __init__(self, words: list[str], log: Path, moment: str = "") -> None:
        self._log = log
        command = ["tests.e2e._signalled", moment] if moment else ["verl_like"]
        with log.open("wb") as out:
            # In a separate session, so that a signal can go to its whole process group, as a terminal's Ctrl-C does.
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command, *words],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._members: list[psutil.Process] = []

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, what: str, is_true: Callable[[], bool]) -> None:
        def is_true_while_running() -> bool:
            assert self._process.poll() is None, f"the run ended before {what}:\n{self.output}"
            return is_true()

        wait_for(what, is_true_while_running, 150)
        self._members = psutil.Process(self._process.pid).children(recursive=True)

    @property
    def members(self) -> list[psutil.Process]:
        """The processes of the command when it was last waited for."""
        return list(self._members)

    def interrupt(self) -> int:
        """Ctrl-C in the terminal; returns the exit status."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(timeout=45)

    def ended(self, *, timeout_s: float) -> int:
        """Wait until the process ends by itself, and return the exit status."""
        return self._process.wait(timeout=timeout_s)

    def killed(self, *, timeout_s: float) -> int:
        """Wait until the process is killed at its chosen moment, and return the exit status."""
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"the run never came to the moment:\n{self.output}"
            with suppress(psutil.NoSuchProcess):
                self._members = psutil.Process(self._process.pid).children(recursive=True) or self._members
            time.sleep(0.3)
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(timeout=10)

    def survivors(self) -> list[str]:
        """Command lines of members that still run."""
        return still_running(self._members)

    def end(self) -> None:
        """Kill every process that is left, whatever the test's result."""
        for process in [*self._members, psutil.Process()] if self._process.poll() is None else self._members:
            if process.pid != os.getpid() and process.is_running():
                process.kill()
        if self._process.poll() is None:
            self.kill()
