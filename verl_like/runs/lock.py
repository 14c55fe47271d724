"""Lock a run folder for one run, across machines that share the disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from verl_like.disk import writing

HEARTBEAT_S = 10.0
STALE_S = 60.0  # a run on another machine without a heartbeat for this long is over
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # some shared disks have no locks


class FolderLock:
    """Holds a run folder while a run writes there; a context manager.

    The kernel releases its lock when the process ends, however it ends. It may not reach other machines, so the file
    ``.lock`` also names its holder, and its time is updated every ``HEARTBEAT_S``.

    Raises:
        ValueError: another run holds the folder; the message names it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / ".lock"
        self._file: IO[str] | None = None
        self._ended = threading.Event()

    def __enter__(self) -> None:
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+")
        try:
            self._lock(self._file)
        except BaseException:
            self._file.close()
            raise
        threading.Thread(target=self._beat, name="run folder heartbeat", daemon=True).start()

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        assert self._file is not None, "the folder was never locked"
        with suppress(OSError):  # the disk is gone; the lock ends with the process
            self._file.truncate(0)  # not removed: another process may have opened it, and would lock a deleted file
        self._file.close()

    def _lock(self, file: IO[str]) -> None:
        _refuse_held(self._folder, file, fcntl.LOCK_EX)
        file.truncate(0)
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "started": started}))
        file.flush()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            with suppress(OSError):  # writers report a full or missing disk
                os.utime(self._path)


def refuse_held(folder: Path) -> None:
    """Refuse a folder that a run holds, without locking it.

    Raises:
        ValueError: a run holds it; the message names the run.
    """
    with suppress(FileNotFoundError, PermissionError), (folder / ".lock").open() as file:
        _refuse_held(folder, file, fcntl.LOCK_SH)


def is_held(folder: Path) -> bool:
    """Return whether a run holds the folder, by what the run writes into its lock file.

    The file is not locked, so this can be asked again and again: a run that starts at that moment is not refused.
    """
    path = folder / ".lock"
    try:
        holder, beat = _holder(path), path.stat().st_mtime
        if holder.get("host") == socket.gethostname():
            # A process that is younger than the last heartbeat has the number of one that has ended.
            return psutil.Process(int(holder["pid"])).create_time() <= beat + 1.0
    except (OSError, psutil.Error, LookupError, TypeError, ValueError):
        return False
    return bool(holder) and time.time() - beat < STALE_S


def _refuse_held(folder: Path, file: IO[str], lock: int) -> None:
    """Lock the file, or refuse the folder if a run holds it."""
    has_locks = True
    try:
        fcntl.flock(file, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(_in_use(folder, _holder(Path(file.name)))) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        has_locks = False
    holder = _holder(Path(file.name))
    if holder.get("host") == socket.gethostname():  # with locks, its process would hold one
        is_held = not has_locks and holder.get("pid") != os.getpid() and psutil.pid_exists(int(holder.get("pid", 0)))
    else:
        is_held = bool(holder)
    if is_held and _silence_s(Path(file.name)) < STALE_S:
        raise ValueError(_in_use(folder, holder))


def _silence_s(path: Path) -> float:
    """Return the seconds since the last heartbeat, by the clock of the disk."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".clock-") as now:
        return os.fstat(now.fileno()).st_mtime - path.stat().st_mtime


def _holder(path: Path) -> dict[str, Any]:
    """Return the file's entries on the run that holds it; empty if no run does."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _in_use(folder: Path, holder: dict[str, Any]) -> str:
    who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}, started {holder.get('started', '?')}"
    return (
        f"{folder} is in use by another run ({who}). Wait until it ends, stop it, or choose another "
        "trainer.experiment_name."
    )
