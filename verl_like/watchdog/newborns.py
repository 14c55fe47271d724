"""Processes of a run that have no heartbeat yet, because they still load Python, Ray or our own code.

They are found from outside. Ray starts a worker as a small program of Python that has the worker's variables on its
command line and then becomes the worker, with these variables in its environment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE, SUFFIX

RAYLET = b"raylet"
UNNAMED = {"default_worker.py": "a process that Ray is starting", "runtime_env/agent": "Ray's runtime-env agent"}
TITLE = "ray::"  # what a process of Ray's calls itself once it runs
IDLE = "ray::IDLE"


class Newborns:
    """The processes of this machine that Ray has started for a run and that have no heartbeat yet.

    A look reads only processes that are new, and those that a raylet has started, so that it can be taken often.

    Args:
        folder: of heartbeats; all of these processes have the run's among their variables.
    """

    def __init__(self, folder: Path) -> None:
        self._run = run_folder(folder)
        self._others: set[str] = set()  # process ids, as text, whose parent is no raylet

    def look(self) -> dict[int, str]:
        """Names of the processes by their ids."""
        known = {path.stem for path in self._run.parent.glob(f"{self._run.name}*/*{SUFFIX}")}
        pids = {entry for entry in os.listdir("/proc") if entry.isdigit()}
        self._others &= pids
        for pid in pids - self._others:
            _, parent = _program_and_parent(pid)
            if _program_and_parent(str(parent))[0] != RAYLET:
                self._others.add(pid)
        children = [int(pid) for pid in pids - self._others - known]
        return {pid: who for pid in children if (who := _who(pid, str(self._run)))}


def run_folder(folder: Path) -> Path:
    """A run's folder of heartbeats, which its processes have among their variables, by that of one node."""
    return folder.with_name(folder.name.partition(".")[0])


def marked_by(folder: Path) -> list[int]:
    """Ids of all processes of this machine that have the folder among their variables: a Ray of the run's own gives
    it to whatever it starts.
    """
    mark = f"{FOLDER_VARIABLE}={folder}"
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and mark in _words(pid, "environ")]


def _who(pid: int, folder: str) -> str:
    """The name of a process of this run; empty for another's, and for one that nobody waits for."""
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
    except (ValueError, KeyError, TypeError):  # of another release
        return {}


def _words(pid: int, what: str) -> list[str]:
    return _content(f"/proc/{pid}/{what}").decode(errors="replace").split("\0")


def _program_and_parent(pid: str) -> tuple[bytes, int]:
    """The name of a process's program and the id of its parent; empty and 0 where it has ended."""
    program, _, rest = _content(f"/proc/{pid}/stat").partition(b"(")[2].rpartition(b") ")
    return (program, int(rest.split(maxsplit=2)[1])) if rest else (b"", 0)


def _content(path: str) -> bytes:
    """All of a file; empty where the process has ended meanwhile, or is another user's."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
