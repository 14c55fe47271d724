"""Log files of a run's processes: one folder per start, one file per process."""

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
MAX_EARLIER_BYTES = 2**20  # kept, from the end, of what a process has printed before its log begins
FORM = MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")

log = logging.getLogger(__name__)


class RunLogs:
    """Folder in which the processes that the driver starts keep their logs."""

    def __init__(self) -> None:
        self.folder = ""  # of this start; empty if no logs are kept

    @contextmanager
    def kept(self, folder: Path) -> Iterator[None]:
        """Keep the logs, also this process's ``logging``, in a new numbered subfolder; those of earlier starts stay."""
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
        """Do nothing: the terminal shows the record, and a full disk is reported by the writes that need it."""


class ProcessLog:
    """Log of this process, once it is kept."""

    def __init__(self) -> None:
        self._is_kept = False

    def keep_from_environment(self) -> None:
        """Append all further output of this process and its libraries to a file named after the process.

        The environment names the folder; without it, nothing changes. Each write goes straight to the kernel, so that
        the last lines before a ``kill -9`` are kept. A full disk loses log lines but causes no error.
        """
        folder, who = os.environ.get(LOGS_VARIABLE), os.environ.get(NAME_VARIABLE, "")
        if not folder:
            return
        path = Path(folder) / f"{who.replace(' ', '-')}.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # on a node that does not share the driver's file system
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
            if not self._is_kept:
                os.write(file, _earlier())
        except OSError as error:
            log.warning("the log of %s cannot be written: %s", who, error)
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


class _LossyStream(io.FileIO):
    """A descriptor whose writes always succeed, even if its disk is full."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


def _stream(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        _LossyStream(number, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True
    )


def _earlier() -> bytes:
    """Return what this process has printed so far, if it went into files, as the output of Ray's processes does."""
    paths = dict.fromkeys(Path(os.path.realpath(f"/proc/self/fd/{number}")) for number in (STDOUT, STDERR))
    return b"".join(path.read_bytes()[-MAX_EARLIER_BYTES:] for path in paths if path.is_file())
