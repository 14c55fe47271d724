"""The process that forks confined processes: ``main SOCKET_FD PARENT_PID FOLDER``, started by ``launcher``.

It is warm (imports done), small, and sees neither programs nor tests: a job comes as a file descriptor that only the
forked process reads. When its parent dies it ends its children, removes its folder and exits; when it dies itself, the
kernel ends its children.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from verl_like.graders.programs import asserts, confinement, solution
from verl_like.graders.programs.confinement import Limits

_MAX_FDS = 256  # of this process; bounds what a child has to close
_FIRST_SPARE_FD = 64  # above every number that a job's files get
_ROLES: dict[str, Callable[[dict[str, Any]], None]] = {
    "program": solution.run_program,
    "functions": solution.answer_calls,
    "asserts": asserts.run_asserts,
}


def main() -> None:
    control_fd, parent_pid, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    signal.signal(signal.SIGTERM, _exit)
    confinement.die_with_parent(parent_pid, signal.SIGTERM)
    # Its hard limit, not the soft one, is what the children's limits are bounded by.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_FDS, hard))
    # Only the interpreter's own modules: a project that is installed in place is not readable from inside anyway.
    sys.path[:] = [path for path in sys.path if os.path.realpath(path).startswith(confinement.interpreter_folders())]
    sys.argv[:] = ["solution.py"]
    job = _Server(socket.socket(fileno=control_fd), folder).serve()
    if job is not None:  # in a forked child
        _ROLES[job["role"]](job)


class _End:
    """Has begun with the first SIGTERM or the end of the parent. Two often come at once, from the kernel and from the
    keeper of processes; a second one must not interrupt the cleaning up after the first.
    """

    has_begun = False


def _exit(signal_number: int, frame: object) -> None:
    if not _End.has_begun:
        _End.has_begun = True
        raise SystemExit(0)


class _Server:
    def __init__(self, control: socket.socket, parent_folder: str) -> None:
        self._control = control
        self._has_landlock = confinement.landlock_version() > 0
        self._root = tempfile.mkdtemp(prefix="verl_like_code_", dir=parent_folder)
        self._folders: dict[int, str] = {}  # of each running child
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # waited for in _end

    def serve(self) -> dict[str, Any] | None:
        """Answer requests until the parent is gone (None); returns in a forked child with its job."""
        pid = os.getpid()
        try:
            try:
                return self._serve()
            finally:  # the inner of two: whatever interrupts it, the outer is not interrupted
                _End.has_begun = True
        finally:
            if os.getpid() == pid:
                self._close()

    def _serve(self) -> dict[str, Any] | None:
        try:
            while True:
                body, fds, _, _ = socket.recv_fds(self._control, 4096, 8)
                if not body:
                    return None
                request = json.loads(body)
                if "end" in request:
                    answer = self._end(request["end"], request["grace_s"])
                else:
                    answer = self._start(fds)
                    if "job" in answer:
                        job: dict[str, Any] = answer["job"]
                        return job
                self._control.send(json.dumps(answer).encode())
        except ConnectionError:
            return None

    def _start(self, fds: list[int]) -> dict[str, Any]:
        """Fork. Here, an answer for the parent: the child's ``pid``, or the ``error`` that kept it from being confined.
        There, the ``job``."""
        folder = tempfile.mkdtemp(dir=self._root)
        server = os.getpid()
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                return {"job": self._child(server, fds, folder)}
            except BaseException as error:  # noqa: BLE001 (whatever it is, nothing unread may run)
                os.write(write_end, str(error).encode())
                os._exit(1)
        for fd in (*fds, write_end):
            os.close(fd)
        self._folders[pid] = folder
        with open(read_end, "rb") as pipe:  # closed by confining
            problem = pipe.read().decode()
        if problem:
            self._end(pid, 0.0)
            return {"error": problem}
        return {"pid": pid}

    def _child(self, server: int, fds: list[int], folder: str) -> dict[str, Any]:
        """Take on the job: ``fds`` are the job, then what become descriptors 0, 1, 2 and so on."""
        os.setsid()
        confinement.die_with_parent(server, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        job_fd, *spare = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_SPARE_FD) for fd in fds]
        for number, fd in enumerate(spare):
            os.dup2(fd, number)
        with open(job_fd, "rb") as file:
            job: dict[str, Any] = json.load(file)
        os.chdir(folder)
        os.environ.update(HOME=folder, TMPDIR=folder)
        tempfile.tempdir = None  # looked up in TMPDIR again
        confinement.confine(Limits(**job["limits"]), folder, has_landlock=self._has_landlock)
        self._control.detach()
        os.closerange(len(spare), _MAX_FDS)
        return job

    def _end(self, pid: int, grace_s: float) -> dict[str, Any]:
        """How the child ended; it is killed where it has not within ``grace_s``."""
        deadline = time.monotonic() + grace_s
        ended, status = os.waitpid(pid, os.WNOHANG)
        while not ended and (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait({signal.SIGCHLD}, left)
            ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        shutil.rmtree(self._folders.pop(pid))
        return {"code": os.waitstatus_to_exitcode(status) if ended else None}

    def _close(self) -> None:
        for pid in self._folders:
            # It may have been interrupted in _end, between two lines.
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        shutil.rmtree(self._root)
