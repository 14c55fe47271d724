"""Start confined processes through a fork server, and report how they ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_like_graders.programs import landlock
from verl_like_graders.programs.confinement import Limits

_ANSWER_TIMEOUT_S = 30.0  # for one request, in addition to its own wait; only a machine that hangs takes that long
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_START = "import sys; sys.path.insert(0, {root!r}); from verl_like_graders.programs.fork_server import main; main()"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a confined process ended."""

    code: int | None  # exit code, or minus the signal that killed it; None if it timed out
    output: bytes  # what it printed, cut at ``file_bytes``
    errors: str  # the end of its standard error


class ConfinedProcess:
    """A running confined process. :meth:`end` must be called once."""

    def __init__(self, server: ForkServer, pid: int, output: int, errors: int) -> None:
        self._server, self._pid, self._output, self._errors = server, pid, output, errors

    def end(self, *, grace_s: float = 0.0) -> Ending:
        """Wait for the process for up to ``grace_s``, then kill it."""
        try:
            if not self._server.is_usable:  # its processes have ended with it
                return Ending(None, b"", "")
            code = self._server._request({"end": self._pid, "grace_s": grace_s}, wait_s=grace_s)["code"]
            size = os.fstat(self._errors).st_size
            errors = os.pread(self._errors, 4096, max(0, size - 4096)).decode(errors="replace")
            return Ending(code, os.pread(self._output, os.fstat(self._output).st_size, 0), errors)
        finally:
            os.close(self._output)
            os.close(self._errors)


class ForkServer:
    """A process that forks confined ones. It always ends with its thread, and must not be shared between threads.

    Args:
        preloaded: name of a module that it imports before it forks. Its ``warm_up`` is called once, and its ``run`` is
            the role ``preloaded``. The package folders of this process can then be imported and read.
    """

    def __init__(self, preloaded: str = "") -> None:
        self._socket, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).resolve().parents[2])
        libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        with server_end:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-B",
                    "-X",
                    "utf8",
                    "-c",
                    _START.format(root=root),
                    str(server_end.fileno()),
                    str(os.getpid()),
                    tempfile.gettempdir(),
                    str(landlock.version()),
                    preloaded,
                    *(_site_folders() if preloaded else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_ENVIRONMENT | libraries,
                pass_fds=[server_end.fileno()],
                start_new_session=True,
            )
        self.pid, self._owner = self._process.pid, os.getpid()
        self.close = weakref.finalize(self, _close, self._socket, self._process, self._owner)

    @property
    def is_usable(self) -> bool:
        """Return False once the server is closed, and in a fork of the process that started it."""
        return self.close.alive and self._owner == os.getpid() and self._process.poll() is None

    def start(
        self, role: str, *, limits: Limits, stdin: str = "", channels: Sequence[socket.socket] = (), **job: Any
    ) -> ConfinedProcess:
        """Start a confined process.

        Args:
            role: ``program``, ``functions``, ``asserts`` or ``preloaded``, of :mod:`fork_server`; ``job`` is its input.
            channels: its descriptors 3, 4 and so on; they are closed here.

        Raises:
            ValueError: the process could not be started or confined; no part of the job was run.
        """
        contents = [json.dumps({"role": role, **job}).encode(), stdin.encode()]
        output, errors = os.memfd_create("output"), os.memfd_create("errors")
        passed_fds = [*map(_file, contents), os.open(os.devnull, os.O_WRONLY)]
        try:
            job_fd, stdin_fd, nowhere = passed_fds
            stdout_fd = output if role == "program" else nowhere  # the output of the other roles is discarded
            answer = self._request(
                {"limits": asdict(limits)},
                [job_fd, stdin_fd, stdout_fd, errors, *(channel.fileno() for channel in channels)],
            )
            if "error" in answer:
                raise ValueError(
                    f"the sandbox for programs cannot be used here: {answer['error']}. It needs Linux 3.17 or later "
                    "with seccomp filters, on x86-64 or aarch64. Score programs by a service "
                    "(reward.function=remote_http)."
                )
            pid: int = answer["pid"]
        except BaseException:
            os.close(output)
            os.close(errors)
            raise
        finally:
            for fd in passed_fds:
                os.close(fd)
            for channel in channels:
                channel.close()
        return ConfinedProcess(self, pid, output, errors)

    def _request(self, request: dict[str, Any], fds: Sequence[int] = (), *, wait_s: float = 0.0) -> dict[str, Any]:
        try:
            self._socket.settimeout(_ANSWER_TIMEOUT_S + wait_s)
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            answer: dict[str, Any] = json.loads(self._socket.recv(4096) or "{}")
        except OSError as error:
            self.close()
            raise ValueError(
                f"the sandbox for programs died or hangs ({error}). Is the machine out of memory?"
            ) from error
        except BaseException:
            self.close()  # a pending answer would be taken for that of the next request
            raise
        if not answer:
            self.close()
            raise ValueError("the sandbox for programs died. Is the machine out of memory?")
        return answer


def check_files_are_safe(*, allow_without_landlock: bool) -> None:
    """Refuse a kernel on which a program could read the user's files, unless that is allowed.

    Raises:
        ValueError: the kernel has no Landlock.
    """
    if not landlock.version() and not allow_without_landlock:
        raise ValueError(
            "this kernel has no Landlock, so that programs of the model could read all your files, and tokens in the "
            "environment of your other processes; expected Linux 5.13 or later, and a container whose seccomp profile "
            "lets Landlock through (Docker's since version 23). Use such a machine, or a container "
            "without private files and the function's option allow_without_landlock=true "
            "(reward.function_kwargs.allow_without_landlock=true)."
        )


def _site_folders() -> list[str]:
    """Return the package folders that this process imports from."""
    return [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]


def _file(content: bytes) -> int:
    """Create a file in memory, positioned at its start."""
    fd = os.memfd_create("input")
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _close(connection: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    connection.close()
    if owner != os.getpid():
        return
    try:
        process.wait(timeout=5)  # it ends its children and removes its folder
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_OF_THREAD = threading.local()


def fork_server(preloaded: str = "") -> ForkServer:
    """Return the calling thread's server; start it at the first call and after it has died."""
    servers: dict[str, ForkServer] = vars(_OF_THREAD).setdefault("servers", {})
    if preloaded not in servers or not servers[preloaded].is_usable:
        servers[preloaded] = ForkServer(preloaded)
    return servers[preloaded]
