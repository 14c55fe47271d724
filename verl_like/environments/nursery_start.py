"""Start a nursery, and make it load a user's code."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verl_like_environments
from verl_like.environments.process_calls import printable
from verl_like.telemetry import stacks
from verl_like_environments.launching import Launched, launch

FOLDER = Path(verl_like_environments.__file__).parent
MAX_PACKET = 1 << 16
MAX_PRINTED = 16 << 20  # bytes of the output of a nursery and all its processes that are passed on
EXIT_TIMEOUT_S = 5.0  # between the end of a nursery's connection and the end of its subreaper
# Another interpreter that searched this interpreter's folders would find packages built for another version.
_OF_INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "PYTHONEXECUTABLE")


class NurseryLost(RuntimeError):
    """The process that loads the user's code has ended or is stopped, and no environment can be started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSettings:
    """Which code to load, and the limits of its processes.

    Args:
        path: ``FILE:NAME`` of an environment; empty if ``tools`` is given.
        tools: file of tools.
        python: interpreter; empty for this one. It gets neither PYTHONPATH nor PYTHONHOME.
        max_memory_gib: memory of a process beyond what loading took.
        max_message_mib: largest answer to a call.
        episodes_per_process: episodes that a process serves, one after the other, if each has left nothing.
        max_processes: episodes beyond this number wait until another has ended. Each process takes one of this
            process's file descriptors, so that ``ulimit -n`` may allow fewer.
    """

    path: str = ""
    tools: str = ""
    python: str = ""
    max_memory_gib: float = 4.0
    max_message_mib: float = 8.0
    start_timeout_s: float = 60.0
    episodes_per_process: int = 64
    max_processes: int = 1024

    @property
    def name(self) -> str:
        """What is loaded, as messages name it."""
        return self.path or self.tools


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """Names the contract of the user's code; ``is_agent`` if the code makes its own requests to the model."""

    kind: str
    is_agent: bool


def nursery_environment(python: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a nursery: all of this process's.

    This interpreter also gets its search path, so that a file imports what the process that generates could import.
    Another interpreter gets no variable that would make it search our folders.
    """
    if python:
        return {name: value for name, value in environment.items() if name not in _OF_INTERPRETER}
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def started_nursery(settings: ProcessSettings) -> Launched:
    """Start a nursery without waiting for it.

    Raises:
        ValueError: the interpreter cannot be started.
        RuntimeError: no more processes or files are available.
    """
    python = os.path.expanduser(settings.python)
    try:
        with stacks.held_back():
            return launch(
                [python or sys.executable, str(FOLDER)],
                socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
                max_printed=MAX_PRINTED,
                environment=nursery_environment(python, os.environ),
            )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise ValueError(
            f"environment.python={python or sys.executable} cannot be started: {error.strerror}; expected the path of "
            f"a Python interpreter. Correct the path."
        ) from error
    except OSError as error:
        if python and error.strerror == "Exec format error":
            raise ValueError(
                f"environment.python={python} is no program; expected the path of a Python interpreter. Correct it."
            ) from error
        raise RuntimeError(
            f"the process that loads {settings.name} cannot be started: {error}. Is the machine short of memory, "
            f"processes or files?"
        ) from error


def loaded(nursery: Launched, settings: ProcessSettings) -> Loaded:
    """Make a nursery load the user's code.

    Raises:
        ValueError: it cannot be loaded, or follows no contract; or its interpreter does not start the nursery.
        TimeoutError: it was not loaded in time.
    """
    packet = {"do": "load", "path": settings.path, "tools": settings.tools, "max_memory_gib": settings.max_memory_gib}
    nursery.connection.settimeout(settings.start_timeout_s)
    try:
        nursery.connection.send(json.dumps(packet).encode())
        content = nursery.connection.recv(MAX_PACKET)
    except TimeoutError:
        raise TimeoutError(
            f"{settings.name} was not loaded within {settings.start_timeout_s:g} s. Import what takes long only where "
            f"it is needed, or raise start_timeout_s."
        ) from None
    except OSError:  # the interpreter has ended before it read the packet
        content = b""
    found: dict[str, Any] = json.loads(content) if content else {}
    if "kind" in found:
        return Loaded(kind=found["kind"], is_agent=found["is_agent"])
    if error := found.get("error"):
        raise ValueError(printable(f"{error}\n{found['traceback']}"))
    raise ValueError(_how_it_ended(nursery, settings, found))


def _how_it_ended(nursery: Launched, settings: ProcessSettings, packet: Mapping[str, Any]) -> str:
    if "nursery_ended" in packet:
        code, last = packet["nursery_ended"], packet["last_output"]
        what = f"the process that loads {settings.name} ended with code {code}."
    else:
        code, last = nursery.subreaper.wait(EXIT_TIMEOUT_S), nursery.rest()
        what = (
            f"environment.python={settings.python or sys.executable} ended with code {code} before it loaded "
            f"{settings.name}; expected a Python interpreter of version 3.10 or newer. Correct the path."
        )
    return printable(f"{what} It printed last:\n{last}" if last else what)
