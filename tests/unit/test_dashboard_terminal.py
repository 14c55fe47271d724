"""``verl-like watch`` in a real terminal: it redraws while the run writes, and ends by q and by Ctrl-C."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks._made_run import write_run
from tests._terminal import open_terminal

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


class Terminal:
    """The command in a pseudo-terminal of 100 columns and 40 lines."""

    def __init__(self, *words: str) -> None:
        self._main, other = open_terminal()
        termios.tcsetwinsize(other, (40, 100))
        self.before = termios.tcgetattr(other)
        self._other = other
        self.process = subprocess.Popen(
            [sys.executable, "-m", "verl_like", "watch", *words],
            cwd=ROOT,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        self.output = ""

    def wait_for(self, is_there: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_there(self.output):
            assert time.monotonic() < deadline, self.output[-4000:]
            ready, _, _ = select.select([self._main], [], [], 0.2)
            if ready:
                self.output += os.read(self._main, 2**16).decode(errors="replace")

    def press(self, key: str) -> None:
        os.write(self._main, key.encode())

    def ended(self) -> int:
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.output[-4000:]
            if select.select([self._main], [], [], 0.2)[0]:
                self.output += os.read(self._main, 2**16).decode(errors="replace")
        return self.process.returncode

    def settings(self) -> list[object]:
        return termios.tcgetattr(self._other)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._main)
        os.close(self._other)


@pytest.mark.processes
@pytest.mark.parametrize("how", ["q", "Ctrl-C"])
def test_it_shows_new_steps_and_ends_with_status_0_and_the_terminal_as_before(how: str, tmp_path: Path) -> None:
    write_run(tmp_path / "made", steps=3, samples=8)
    terminal = Terminal(str(tmp_path / "made"), "--every", "0.2")
    try:
        terminal.wait_for(lambda output: "step 3 of 3" in output)
        with (tmp_path / "made/metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 4, "reward/score_mean": 0.5}) + "\n")
        terminal.wait_for(lambda output: "step 4 of 3" in output)
        assert terminal.settings() != terminal.before, "keys are read without the end of a line"
        if how == "q":
            terminal.press("x")
            terminal.press("q")
        else:
            os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.ended() == 0
        assert terminal.settings() == terminal.before
        assert "Traceback" not in terminal.output and "interrupted" not in terminal.output
    finally:
        terminal.close()
