"""The program of the fork server: imports the libraries of workers, then forks a worker for each request.

A process with threads must not be forked, because locks that other threads hold stay locked in the child. The server
therefore has one thread, and if a library has started another, it forks nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from verl_like.call_threads import BLOCKED_SIGNALS
from verl_like.controller.fork_server import random_ids
from verl_like.controller.fork_server.setup_worker import SIZE_BYTES
from verl_like.imports import importing
from verl_like.watchdog.starting import FORK_SERVER, forked_title
from verl_like_environments.confined import end_with_parent, end_with_pipe

PEER = struct.Struct("iII")  # process, user and group of a socket's other end
REQUEST_S = 5.0  # for a client to send its request
PR_SET_NAME = 15
MAX_NAME = 240  # bytes of the name of a file in memory
BACKGROUND = "background_thread:true"  # jemalloc's option for a thread, which the server turns off
# Variables that may differ: those that we set for each process, and those that the server sets itself.
OURS, OF_RAY = "VERL_LIKE_", "RAY_"
FREE = {"MALLOC_CONF", "JE_ARROW_MALLOC_CONF", "SPT_NOENV", "PYTHONBREAKPOINT", "PWD", "OLDPWD", "SHLVL", "_"}


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedProcess:
    """A process that the raylet wants."""

    words: list[str]  # the program that Python runs, and its arguments
    environment: dict[str, str]
    folder: str  # to run in
    files: list[int]  # its standard input, output and error


class Libraries:
    """The libraries of workers, and the environment that they may have read.

    Ray's library keeps the variables that it finds when it is loaded, and the raylet sets some of them for its
    processes. It is therefore loaded with those of the first request (2.60).

    Args:
        calls: each a module, or ``module:function`` with its arguments; they do not load Ray.
        calls_with_ray: those that do.
    """

    def __init__(self, calls: Sequence[Sequence[str]], calls_with_ray: Sequence[Sequence[str]]) -> None:
        self._environment = dict(os.environ)
        self._calls_with_ray = calls_with_ray
        self._of_ray: dict[str, str] | None = None
        self._problem = _imported(calls)

    @property
    def set_variables(self) -> dict[str, str]:
        """The variables that libraries have set when they were imported."""
        own = {**self._environment, **(self._of_ray or {})}
        return {name: value for name, value in os.environ.items() if own.get(name) != value}

    def refused(self, wanted: Mapping[str, str]) -> str:
        """Load what is missing; return why no process with these variables can be forked, or an empty string."""
        changed = _differing(self._environment, wanted)
        if changed:
            return f"other values of {', '.join(changed)} are wanted"
        of_ray = {name: value for name, value in wanted.items() if name.startswith(OF_RAY)}
        if self._of_ray is None:
            self._of_ray = of_ray
            os.environ.update(of_ray)
            self._problem = self._problem or _imported_with_ray(self._calls_with_ray) or _threads() or _ids()
        return self._problem or ("another Ray wants it" if of_ray != self._of_ray else "")


def main(arguments: Sequence[str]) -> None:
    """Serve until the driver ends; in each forked process, run its program.

    Args:
        arguments: one JSON object: the descriptors ``listener`` and ``lifeline``, and the calls of :class:`Libraries`.
    """
    given = json.loads(arguments[0])
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)  # as in Ray's servers, whose children inherit it
    end_with_pipe(given["lifeline"])
    ctypes.CDLL(None).prctl(PR_SET_NAME, FORK_SERVER, 0, 0, 0)
    libraries = Libraries(given["calls"], given["calls_with_ray"])
    with socket.socket(fileno=given["listener"]) as listener:
        connection, request = _next_request(listener, libraries)
    with connection:
        os.close(given["lifeline"])
        _take_limits(_peer(connection)[0])
        _become(request, libraries.set_variables)
        _answer(connection, "")
    runpy.run_path(request.words[0], run_name="__main__")


def _differing(server: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return the variables that are to have another value than libraries may have read, or have set, in the server."""
    named = {name for name in {*server, *wanted} if wanted.get(name) not in (server.get(name), os.environ.get(name))}
    return sorted(filter(is_compared, named))


def is_compared(name: str) -> bool:
    """Return whether a process must have the server's value of this variable to be forked."""
    return name not in FREE and not name.startswith((OURS, OF_RAY))


def _imported(calls: Sequence[Sequence[str]]) -> str:
    """Import libraries; return why nothing can be forked, or an empty string."""
    try:
        with importing():
            for function, *arguments in calls:
                module, _, name = function.partition(":")
                loaded = importlib.import_module(module)
                if name:
                    vars(loaded)[name](*arguments)
    except Exception as error:  # noqa: BLE001 (a worker reports it, when it imports the same)
        return f"{type(error).__name__}: {error}"
    return ""


def _imported_with_ray(calls: Sequence[Sequence[str]]) -> str:
    with random_ids.ids_of_kernel():
        return _imported(calls)


def _ids() -> str:
    """Return why forked processes would be mixed up by Ray, or an empty string."""
    return "its processes would have the same random ids" if random_ids.repeated() else ""


def _threads() -> str:
    """Return why a process with the threads of this one cannot be forked; empty if it has one thread."""
    names = [_content(f"/proc/self/task/{thread}/comm") for thread in os.listdir("/proc/self/task")]
    return f"a library has started a thread (found {', '.join(names)})" if len(names) > 1 else ""


def _next_request(listener: socket.socket, libraries: Libraries) -> tuple[socket.socket, WantedProcess]:
    """Fork a process for each request; return, in that process, the connection to answer on and what it is to run."""
    while True:
        connection, _ = listener.accept()
        with suppress(OSError, ValueError), connection:  # a client that ended early
            if not _is_own(connection):
                continue
            request = _received(connection)
            refused = libraries.refused(request.environment)
            if refused:
                _answer(connection, refused)
            elif _is_forked():
                return connection.dup(), request
            for file in request.files:
                os.close(file)


def _is_forked() -> bool:
    """Fork this process; return whether this is the child, which ends with its parent."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps workers; processes of imports were waited for
    server = os.getpid()
    if os.fork():
        return False
    os.setpgid(0, 0)  # the raylet's processes have groups, which it ends with them
    end_with_parent(server)
    return True


def _is_own(connection: socket.socket) -> bool:
    """Return whether the client belongs to this user: a socket without a file is open to all."""
    return _peer(connection)[1] == os.getuid()


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Return the ids of the client's process and of its user."""
    process, user, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return process, user


def _take_limits(client: int) -> None:
    """Take the limits of the process that the raylet has started: ``ray.init`` raises that of open files, and the
    raylet lets the kernel kill its workers first (2.60).
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.prlimit(client, resource.RLIMIT_NOFILE))
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(_content(f"/proc/{client}/oom_score_adj"))


def _answer(connection: socket.socket, refused: str) -> None:
    connection.sendall(json.dumps({"refused": refused}).encode())


def _received(connection: socket.socket) -> WantedProcess:
    connection.settimeout(REQUEST_S)
    size, files, _, _ = socket.recv_fds(connection, SIZE_BYTES, 3)
    left, parts = int.from_bytes(size, "little"), []
    while left and (part := connection.recv(left)):
        parts.append(part)
        left -= len(part)
    return WantedProcess(**json.loads(b"".join(parts)), files=files)


def _become(request: WantedProcess, set_variables: Mapping[str, str]) -> None:
    """Make this process what the raylet would have started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(request.files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update({**request.environment, **set_variables})
    if BACKGROUND in os.environ.get("MALLOC_CONF", ""):
        _start_background_thread()
    numpy: Any = importlib.import_module("numpy")
    numpy.random.seed()  # Python's own generator is seeded again by fork; torch's starts with a constant
    sys.argv[:] = request.words
    raylet: Any = importlib.import_module("ray._raylet")
    title = forked_title(request.environment)
    raylet.setproctitle(title)
    os.memfd_create(title[:MAX_NAME])  # stays open and keeps the title, which Ray soon replaces
    sys.path.insert(0, os.path.dirname(os.path.realpath(request.words[0])))


def _start_background_thread() -> None:
    """Start jemalloc's thread, which returns freed pages."""
    library, is_on = ctypes.CDLL(None), ctypes.c_bool(True)
    if hasattr(library, "mallctl"):  # else another allocator is preloaded, which does not read MALLOC_CONF
        library.mallctl(b"background_thread", None, None, ctypes.byref(is_on), ctypes.c_size_t(1))


def _content(path: str) -> str:
    with open(path) as file:
        return file.read().strip()


if __name__ == "__main__":
    main(sys.argv[1:])
