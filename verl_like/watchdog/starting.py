"""Find processes of a run that have no heartbeat yet because they still load Python, Ray or our own code.

They are found from outside. Ray starts a worker as a small Python program whose command line contains the worker's
environment variables. The program then becomes the worker, with these variables in its environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE, SUFFIX

RAYLET, FORK_SERVER = b"raylet", b"fork server"  # names of programs whose children are a run's processes
FORKED, OF_RUN = "forked as ", " in "  # before the name and the folder in the title of a forked process
IN_MEMORY, DELETED = "/memfd:", " (deleted)"  # around the name of a file in memory
UNNAMED = {"default_worker.py": "a process that Ray is starting", "runtime_env/agent": "Ray's runtime-env agent"}
TITLE = "ray::"  # prefix of the title of a Ray process once it runs
IDLE = "ray::IDLE"


class StartingProcesses:
    """Processes on this machine that Ray has started for a run and that have no heartbeat yet.

    A check reads only new processes and children of raylets and fork servers, so that it can be made often.

    Args:
        folder: heartbeat folder; the environment of all these processes names the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._run = run_folder(folder)
        self._others: set[str] = set()  # process ids, as text, whose parent is neither a raylet nor a fork server
        self._forked: dict[str, str] = {}  # names of forked processes by id, as text

    def find(self) -> dict[int, str]:
        """Return the names of the processes by process id."""
        known = {path.stem for path in self._run.parent.glob(f"{self._run.name}*/*{SUFFIX}")}
        pids = {entry for entry in os.listdir("/proc") if entry.isdigit()}
        self._others &= pids
        for pid in pids - self._others:
            _, parent = _program_and_parent(pid)
            if _program_and_parent(str(parent))[0] not in (RAYLET, FORK_SERVER):
                self._others.add(pid)
        self._forked = {pid: who for pid, who in self._forked.items() if pid in pids}
        return {int(pid): who for pid in pids - self._others - known if (who := self._name(pid))}

    def _name(self, pid: str) -> str:
        if pid not in self._forked:
            title = _forked_title(pid)
            if not title:
                return _who(int(pid), str(self._run))
            who, _, folder = title.removeprefix(FORKED).rpartition(OF_RUN)
            self._forked[pid] = who if folder == str(self._run) else ""
        return self._forked[pid]


def forked_title(environment: Mapping[str, str]) -> str:
    """Return the title of a process that the fork server forks, by which it is found until Ray gives it another.

    Its environment, as the kernel shows it, is that of the server.
    """
    return f"{FORKED}{environment.get(NAME_VARIABLE, '')}{OF_RUN}{environment.get(FOLDER_VARIABLE, '')}"


def _forked_title(pid: str) -> str:
    """Return the title that a forked process had at first; a file in memory keeps it as its name."""
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for file in os.listdir(folder):
            with suppress(OSError):  # closed meanwhile
                name = os.readlink(f"{folder}/{file}")
                if name.startswith(IN_MEMORY + FORKED):
                    return name.removeprefix(IN_MEMORY).removesuffix(DELETED)
    return ""


def run_folder(folder: Path) -> Path:
    """Return the run's heartbeat folder, which its processes have in their environment, from that of one node."""
    return folder.with_name(folder.name.partition(".")[0])


def marked_by(folder: Path) -> list[int]:
    """Return the ids of all processes on this machine with the folder in their environment.

    A Ray that the run has started passes it to all its processes.
    """
    mark = f"{FOLDER_VARIABLE}={folder}"
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and mark in _words(pid, "environ")]


def _who(pid: int, folder: str) -> str:
    """Return the name of a process of this run; empty for other runs' processes and for idle workers."""
    words = _words(pid, "cmdline")
    variables = dict(word.split("=", 1) for word in _words(pid, "environ") if "=" in word)
    line = " ".join(words)
    if line.startswith(IDLE):
        return ""
    variables |= next((_variables(word) for word in words if word.startswith("--serialized-runtime-env-context=")), {})
    if variables.get(FOLDER_VARIABLE) != folder:
        return ""
    if name := variables.get(NAME_VARIABLE):
        return name
    if line.startswith(TITLE):
        return f"a process that Ray has started, {line.strip()}"
    return next((who for part, who in UNNAMED.items() if part in line), "")


def _variables(word: str) -> dict[str, str]:
    try:
        return dict(json.loads(word.partition("=")[2])["env_vars"])
    except (ValueError, KeyError, TypeError):  # another Ray release
        return {}


def _words(pid: int, what: str) -> list[str]:
    return _content(f"/proc/{pid}/{what}").decode(errors="replace").split("\0")


def _program_and_parent(pid: str) -> tuple[bytes, int]:
    """Return the name of a process's program and the id of its parent; empty and 0 if it has ended."""
    program, _, rest = _content(f"/proc/{pid}/stat").partition(b"(")[2].rpartition(b") ")
    return (program, int(rest.split(maxsplit=2)[1])) if rest else (b"", 0)


def _content(path: str) -> bytes:
    """Return the content of a file; empty if the process has ended or belongs to another user."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
