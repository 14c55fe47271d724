"""What the processes of a run print, in its folder: a folder for each start, and in that a file for each process."""

from __future__ import annotations

import io
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_like.disk import writing
from verl_like.masking import OWNER_ONLY, MaskingFormatter
from verl_like.telemetry.heartbeat import NAME_VARIABLE

LOGS_VARIABLE = "VERL_LIKE_LOGS"
LOGGERS = ("verl_like", "verl_like_graders")  # the graders' loggers are not below ours
STDOUT, STDERR = 1, 2
MAX_EARLIER_BYTES = 2**20  # of what a process has printed before its log begins, from the end
FORM = MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")

log = logging.getLogger(__name__)


class RunLogs:
    """Where the processes that the driver starts keep their logs."""

    def __init__(self) -> None:
        self.folder = ""  # of this start; empty where none is kept

    @contextmanager
    def kept(self, folder: Path) -> Iterator[None]:
        """Have them, and this process's ``logging``, in a new folder below this one; earlier starts' stay."""
        starts = (int(path.name) for path in folder.glob("*") if path.name.isdigit())
        here = folder / str(max(starts, default=0) + 1)
        with writing(here):
            here.mkdir(parents=True)
            os.close(os.open(here / "driver.log", os.O_WRONLY | os.O_CREAT, OWNER_ONLY))
            handler = _DriverLog(here / "driver.log", encoding="utf-8")
        handler.setFormatter(FORM)
        logging.getLogger().addHandler(handler)
        self.folder = str(here)
        try:
            yield
        finally:
            self.folder = ""
            logging.getLogger().removeHandler(handler)
            handler.close()


class _DriverLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Nothing: the terminal has the record, and whatever needs the disk reports that it is full."""


RUN_LOGS = RunLogs()


class ProcessLog:
    """The log of this process, once it keeps one."""

    def __init__(self) -> None:
        self._is_kept = False

    def keep_from_environment(self) -> None:
        """From now on all that this process and its libraries print is appended to a file in the folder that its
        environment names, which is named after the process; where there is no folder, nothing changes.

        Each write is the kernel's at once, so that the last lines before a ``kill -9`` are there. A disk that takes
        nothing more loses lines, and nothing else.
        """
        folder, who = os.environ.get(LOGS_VARIABLE), os.environ.get(NAME_VARIABLE, "")
        if not folder:
            return
        path = Path(folder) / f"{who.replace(' ', '-')}.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # on a node that shares no file system with the driver's
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
            if not self._is_kept:
                os.write(file, _earlier())
        except OSError as error:
            log.warning("no log is kept of %s: %s", who, error)
            return
        for stream, number in ((sys.stdout, STDOUT), (sys.stderr, STDERR)):
            stream.flush()
            os.dup2(file, number)
        os.close(file)
        if not self._is_kept:
            self._is_kept = True
            sys.stdout, sys.stderr = _stream(STDOUT), _stream(STDERR)
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(FORM)
            for name in LOGGERS:
                logging.getLogger(name).addHandler(handler)
                logging.getLogger(name).setLevel(logging.INFO)
        log.info("%s is process %d on %s", who, os.getpid(), socket.gethostname())


PROCESS_LOG = ProcessLog()


class _Forgiving(io.FileIO):
    """A descriptor that takes everything, whether or not its disk does."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


def _stream(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        _Forgiving(number, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True
    )


def _earlier() -> bytes:
    """What this process has printed so far, as far as that can be read again: where it went into files, as Ray's do."""
    paths = dict.fromkeys(Path(os.path.realpath(f"/proc/self/fd/{number}")) for number in (STDOUT, STDERR))
    return b"".join(path.read_bytes()[-MAX_EARLIER_BYTES:] for path in paths if path.is_file())
