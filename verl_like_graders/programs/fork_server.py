"""The process that forks confined processes: ``main SOCKET_FD PARENT_PID FOLDER LANDLOCK PRELOADED SITE_FOLDERS``,
started by ``launcher``.

It is warm (imports done), small, and sees neither programs nor tests: a job arrives as a file descriptor that only the
forked process reads. When its parent dies, it ends its children, removes its folder and exits. When it dies itself, the
kernel ends its children.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from verl_like_graders.programs import asserts, confinement, landlock, solution
from verl_like_graders.programs.confinement import Limits
from verl_like_graders.programs.supervision import Supervisor

_MAX_FDS = 256  # of this process; bounds the number that a child has to close
_FIRST_SPARE_FD = 64  # above all descriptors of a job
_KILLED_WITHIN_S = 0.2  # for a killed process to end; a slower one is cleaned up later
_CONFINED_WITHIN_S = 20.0  # confinement takes a millisecond unless the process is stopped
_CONFINED = b"confined"
_ROLES: dict[str, Callable[[dict[str, Any]], None]] = {
    "program": solution.run_program,
    "functions": solution.answer_calls,
    "asserts": asserts.run_asserts,
}


def main() -> None:
    control_fd, parent_pid, folder, landlock_version, preloaded, *site_folders = sys.argv[1:]
    signal.signal(signal.SIGTERM, _exit)
    confinement.die_with_parent(int(parent_pid), signal.SIGTERM)
    confinement.hide_memory()
    # The children's limits are bounded by this hard limit, not by the soft one.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_FDS, hard))
    if preloaded:
        sys.path += site_folders
        module = vars(import_module(preloaded))
        module["warm_up"]()
        _ROLES["preloaded"] = module["run"]
    # Keep only folders that can be read when confined; a project installed in place cannot.
    sys.path[:] = [path for path in sys.path if path in site_folders or landlock.is_interpreters(path)]
    sys.argv[:] = ["solution.py"]
    control = socket.socket(fileno=int(control_fd))
    job = _Server(control, folder, int(landlock_version), tuple(site_folders)).serve()
    if job is not None:  # in a forked child
        _ROLES[job["role"]](job)


class _End:
    """Set at the first SIGTERM or at the end of the parent.

    Two signals often arrive together, from the kernel and from the process supervisor. The second must not interrupt
    the cleanup after the first.
    """

    has_begun = False


def _exit(signal_number: int, frame: object) -> None:
    if not _End.has_begun:
        _End.has_begun = True
        raise SystemExit(0)


@dataclass(slots=True)
class _Child:
    folder: str
    supervisor: Supervisor | None
    status: int | None = None  # None until it has ended


class _Server:
    def __init__(
        self, control: socket.socket, parent_folder: str, landlock_version: int, site_folders: tuple[str, ...]
    ) -> None:
        self._control, self._landlock_version, self._site_folders = control, landlock_version, site_folders
        self._children: dict[int, _Child] = {}
        self._being_killed: set[int] = set()  # killed children whose result is no longer needed
        self._wake_reader, wake = os.pipe()  # written to when a child ends
        for fd in (self._wake_reader, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # What every child needs is created before the first child.
        confinement.prepare(site_folders)
        gc.collect()
        gc.freeze()
        self._root = tempfile.mkdtemp(prefix="verl_like_code_", dir=parent_folder)  # last, because serve() removes it

    def serve(self) -> dict[str, Any] | None:
        """Answer requests until the parent is gone (None); in a forked child, return its job."""
        pid = os.getpid()
        try:
            try:
                return self._serve()
            finally:  # the inner of two: an interrupt here does not interrupt the outer one
                _End.has_begun = True
        finally:
            if os.getpid() == pid:
                self._close()

    def _serve(self) -> dict[str, Any] | None:
        try:
            while True:
                while self._control.fileno() not in self._attend(None, self._control.fileno()):
                    pass
                body, fds, _, _ = socket.recv_fds(self._control, 4096, 8)
                if not body:
                    return None
                request = json.loads(body)
                if "end" in request:
                    answer = self._end(request["end"], request["grace_s"])
                else:
                    answer = self._start(fds, Limits(**request["limits"]))
                    if "job" in answer:
                        job: dict[str, Any] = answer["job"]
                        return job
                self._control.send(json.dumps(answer).encode())
        except ConnectionError:
            return None

    def _attend(self, timeout_s: float | None, *others: int) -> set[int]:
        """Wait for one of ``others``, the end of a child, or a child's request, and handle the latter two.

        Returns:
            the descriptors that were ready.
        """
        supervisors = {child.supervisor.listener: child for child in self._children.values() if child.supervisor}
        poll = select.poll()
        for fd in (self._wake_reader, *others, *supervisors):
            poll.register(fd, select.POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else max(0.0, timeout_s * 1e3)))
        for fd in ready.keys() & supervisors.keys():
            child = supervisors[fd]
            assert child.supervisor is not None, "it was asked for above"
            if ready[fd] & select.POLLIN:
                child.supervisor.answer()
            else:  # all of the child's threads have ended
                child.supervisor.close()
                child.supervisor = None
        if self._wake_reader in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_reader, 4096)
            self._reap()
        return set(ready)

    def _reap(self) -> None:
        for pid, child in self._children.items():
            if child.status is None:
                ended, status = os.waitpid(pid, os.WNOHANG)
                child.status = status if ended else None
        for pid in [pid for pid in self._being_killed if self._children[pid].status is not None]:
            self._being_killed.discard(pid)
            self._forget(pid)

    def _start(self, fds: list[int], limits: Limits) -> dict[str, Any]:
        """Fork a confined child.

        Returns:
            in this process the answer for the parent: the child's ``pid``, or the ``error`` that prevented its
            confinement. In the child, the ``job``.
        """
        try:
            folder = tempfile.mkdtemp(dir=self._root)
            server = os.getpid()
            own_end, child_end = socket.socketpair()
            pid = os.fork()
        except OSError as error:  # no more processes, files or disk
            for fd in fds:
                os.close(fd)
            return {"error": str(error)}
        if pid == 0:
            try:
                return {"job": self._child(server, fds, folder, limits, child_end)}
            except BaseException as error:  # noqa: BLE001 (after any error, no unreviewed code may run)
                child_end.send(str(error).encode()[:4096])
                os._exit(1)
        child_end.close()
        for fd in fds:
            os.close(fd)
        child = self._children[pid] = _Child(folder, None)
        own_end.settimeout(_CONFINED_WITHIN_S)
        with own_end:
            try:
                said, listeners, _, _ = socket.recv_fds(own_end, 4096, 1)
            except TimeoutError:
                said, listeners = f"a process was not confined within {_CONFINED_WITHIN_S:g} s".encode(), []
        if listeners:
            child.supervisor = Supervisor(listeners[0], pid=pid, folder=folder, limits=limits)
        if said != _CONFINED:
            self._end(pid, 0.0)
            return {"error": said.decode(errors="replace") or "a process ended while it was confined"}
        return {"pid": pid}

    def _child(
        self, server: int, fds: list[int], folder: str, limits: Limits, confined: socket.socket
    ) -> dict[str, Any]:
        """Return the job in the child. ``fds`` are the job, then the files for descriptors 0, 1, 2 and so on."""
        os.setsid()
        confinement.die_with_parent(server, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for caught in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(caught, signal.SIG_DFL)
        job_fd, *spare = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_SPARE_FD) for fd in fds]
        said = fcntl.fcntl(confined.fileno(), fcntl.F_DUPFD, _FIRST_SPARE_FD)
        for number, fd in enumerate(spare):
            os.dup2(fd, number)
        with open(job_fd, "rb") as file:
            job: dict[str, Any] = json.load(file)
        os.chdir(folder)
        os.environ.update(HOME=folder, TMPDIR=folder)
        tempfile.tempdir = None  # so that TMPDIR is read again
        link = socket.socket(fileno=said)
        listener = confinement.confine(
            limits, folder, landlock_version=self._landlock_version, site_folders=self._site_folders
        )
        socket.send_fds(link, [_CONFINED], [] if listener is None else [listener])
        for owner in (self._control, confined, link):
            owner.detach()
        # above all the listener: a process that has it can approve its own requests
        os.closerange(len(spare), _MAX_FDS)
        return job

    def _end(self, pid: int, grace_s: float) -> dict[str, Any]:
        """Return how the child ended; kill it if it has not ended within ``grace_s``."""
        has_ended = self._has_ended(pid, grace_s)
        if not has_ended:
            os.kill(pid, signal.SIGKILL)
            if not self._has_ended(pid, _KILLED_WITHIN_S):
                self._being_killed.add(pid)
                return {"code": None}
        status = self._children[pid].status
        assert status is not None, "it has been waited for"
        self._forget(pid)
        return {"code": os.waitstatus_to_exitcode(status) if has_ended else None}

    def _has_ended(self, pid: int, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        self._reap()
        while self._children[pid].status is None and (left := deadline - time.monotonic()) > 0:
            self._attend(left)
        return self._children[pid].status is not None

    def _forget(self, pid: int) -> None:
        child = self._children.pop(pid)
        if child.supervisor:
            child.supervisor.close()
        shutil.rmtree(child.folder)

    def _close(self) -> None:
        for pid in self._children:
            # _end may have been interrupted before it forgot the child.
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        shutil.rmtree(self._root)
