"""Driver side of the watchdog: start its process, read its reports, restart it if it ends or falls silent."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from verl_like.context import current
from verl_like.telemetry import stacks
from verl_like.telemetry.heartbeat import Heartbeat, heartbeat_folder
from verl_like.watchdog.sibling import BYE, Settings

log = logging.getLogger(__name__)
SILENT_S = 25.0  # the watchdog reports every five seconds that it is alive
MAX_PAUSE_S = 10.0  # before the next start of a watchdog that ends repeatedly
END_S = 3.0
HELD = "held"  # a file that the driver keeps locked


class Listener(Protocol):
    """Receives the watchdog's reports, on a separate thread."""

    def stalled(self, text: str, *, is_certain: bool) -> None:
        """Report hung processes; certain if a process is stopped, or past a deadline learnt from this run."""

    def noted(self, text: str) -> None:
        """Report a warning that is already in this node's log."""

    def died(self, who: str, text: str) -> None:
        """Report that a process has ended; ``text`` is what was known of it."""

    def died_at_start(self, who: str) -> None:
        """Report a process that died before its first call and that Ray has not replaced."""


@contextmanager
def watchdog(
    run_id: str, stalls: Path, listener: Listener, *, floor_s: float, ends: bool, who: str = "the driver"
) -> Iterator[None]:
    """Watch this process and those that write heartbeats into the run's folder.

    Args:
        stalls: folder below which verdicts and stacks are written.
        floor_s: shortest deadline.
        ends: whether to kill a driver that does not end after a verdict.
        who: name of this process in messages.
    """
    folder = heartbeat_folder(run_id)
    settings = Settings(
        folder=str(folder), driver=os.getpid(), stalls=str(stalls.absolute()), floor_s=floor_s, ends=ends
    )
    held: IO[str] | None = None
    try:
        remove_abandoned(folder.parent)
        held = make_and_lock(folder)
        current(Heartbeat).start(folder, who)
        guard = _Guard(settings, listener)
    except OSError as error:
        current(Heartbeat).stop()
        if held is not None:
            held.close()
        shutil.rmtree(folder, ignore_errors=True)
        log.warning("the watchdog is off: %s", error)
        yield
        return
    guard.start()
    try:
        yield
    finally:
        guard.close()
        current(Heartbeat).stop()
        shutil.rmtree(folder, ignore_errors=True)  # the watchdog does this too, unless it was killed or stopped
        held.close()


def make_and_lock(folder: Path) -> IO[str]:
    """Make a heartbeat folder with a locked file in it; once that file is closed, the folder may be removed.

    Raises:
        OSError: there is no space for it.
    """
    making = folder.with_name(f".{folder.name}")  # hidden from remove_abandoned until the lock is held
    making.mkdir(parents=True)
    try:
        held = (making / HELD).open("w")
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        making.rename(folder)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return held


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of runs whose driver and watchdog were both killed.

    The kernel's file locks show which folders are in use, also from other containers.
    """
    for file in parent.glob(f"{heartbeat_folder('*').name}/{HELD}"):
        with suppress(OSError), file.open("r+") as left:  # it belongs to another user, or is locked
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)


class _Guard:
    def __init__(self, settings: Settings, listener: Listener) -> None:
        self._settings, self._listener = settings, listener
        self._process = _spawn(settings)  # here, so that later counts of the driver's child processes include it
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_closing.set()
        process = self._process
        assert process.stdin is not None, "the watchdog's process was started without a pipe"
        with suppress(OSError):
            process.stdin.write(BYE)
            process.stdin.close()
        self._thread.join(END_S)
        _end(process)

    def _run(self) -> None:
        pause_s = 0.0
        while True:
            began = time.monotonic()
            why = self._pass_reports_on(self._process)
            if self._is_closing.is_set():
                return
            _end(self._process)
            if time.monotonic() - began > MAX_PAUSE_S:
                pause_s = 0.0
            log.warning("the watchdog's process %s; another one is started", why)
            if not self._started_again(pause_s):
                return
            pause_s = min(max(2 * pause_s, 1.0), MAX_PAUSE_S)

    def _started_again(self, pause_s: float) -> bool:
        """Start another process after the pause; return whether the run still needs one."""
        while not self._is_closing.wait(pause_s):
            try:
                self._process = _spawn(self._settings)
                return True
            except OSError as error:  # no process or file is available, perhaps only for a while
                pause_s = MAX_PAUSE_S
                log.warning("the watchdog is off; the next start is in %.0f s: %s", pause_s, error)
        return False

    def _pass_reports_on(self, process: subprocess.Popen[bytes]) -> str:
        """Pass on the reports of the process until it ends or falls silent; return the reason."""
        assert process.stdout is not None, "the watchdog's process was started without a pipe"
        read_at, left = time.monotonic(), b""
        while True:
            if not select.select([process.stdout], [], [], 1.0)[0]:
                if time.monotonic() - read_at > SILENT_S:
                    return f"was silent for {SILENT_S:.0f} s"
                continue
            read_at = time.monotonic()
            found = os.read(process.stdout.fileno(), 2**16)
            if not found:
                return "has ended"
            *lines, left = (left + found).split(b"\n")
            for line in lines:
                with suppress(ValueError):  # a line cut off because this process had not read for hours
                    self._pass_on(json.loads(line))

    def _pass_on(self, report: dict[str, Any]) -> None:
        if report["kind"] == "stall":
            calls = f"\n{report['calls']}" if report["calls"] else ""
            log.error("watchdog: %s Stacks of all processes: %s%s", report["text"], report["folder"], calls)
            self._listener.stalled(f"{report['text']} Stacks: {report['folder']}", is_certain=report["is_certain"])
        elif report["kind"] == "note":
            log.warning("watchdog: %s", report["text"])
            self._listener.noted(report["text"])
        elif report["kind"] == "dead":
            self._listener.died(report["who"], report["text"])
        elif report["kind"] == "died_at_start":
            self._listener.died_at_start(report["who"])


def _spawn(settings: Settings) -> subprocess.Popen[bytes]:
    with stacks.held_back():
        return subprocess.Popen(
            [sys.executable, "-m", "verl_like.watchdog", settings.json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C and Ctrl-Z are for the driver only
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(END_S)
