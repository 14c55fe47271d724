"""The process that loads a user's code once, and forks a process of it for every episode.

It talks to the training process over a socket of packets. A forked process gets its own stream socket with a packet,
and serves its episode on it (:mod:`verl_like_environments.serving`).

A forked process is the subreaper of what it starts, and the nursery is the subreaper of the forked processes. When one
of them ends, the orphans that it leaves become children of the nursery, which ends them: a server, or a daemon in
another session, lives no longer than its episode. What loading has started is left alone until the nursery ends.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from verl_like_environments import confined, loading
from verl_like_environments.agent_programs import AgentProgram
from verl_like_environments.serving import serve
from verl_like_environments.session import Kind
from verl_like_environments.subreaper import TURN_S, Termination, adopt_orphans, own_children, wake_at_sigchld

MAX_PACKET = 1 << 16
MAX_TEXT = 4000  # characters of an error and of its traceback, which as JSON are up to six bytes each


class Nursery:
    """The loop of the process.

    Args:
        control: socket of packets. A packet is a request in JSON, or reports how a forked process ended.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._kind: Kind | AgentProgram | None = None
        self._numbers: dict[int, int] = {}  # pids of the forked processes -> their numbers
        self._pids: dict[int, int] = {}  # the other way round
        self._max_memory_gib = 0.0
        self._unsent: deque[bytes] = deque()  # a nursery that waits for its reader could not serve it
        self._of_loading: set[int] = set()  # pids of the processes that loading has started
        self._orphans = Termination()
        self._has_orphans = False

    def run(self) -> None:
        """Serve requests until the training process closes the socket."""
        faulthandler.register(signal.SIGUSR1)  # prints the stacks of a forked process, too
        signal.pthread_sigmask(signal.SIG_SETMASK, set())  # the mask of a Ray worker would reach the user's programs
        adopt_orphans()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # the last lines before a crash are the most useful
        woken = wake_at_sigchld()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            poll.modify(self._control, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            ready = dict(poll.poll(TURN_S * 1e3 if self._has_orphans else None))
            if woken in ready:
                with suppress(BlockingIOError):
                    os.read(woken, 4096)
            self._reap()
            events = ready.get(self._control.fileno(), 0)
            try:
                if events & select.POLLOUT:
                    self._send_waiting()
                if events & ~select.POLLOUT and not self._answer():
                    return
            except ConnectionError:  # the training process has closed the socket and left packets unread
                return

    def _answer(self) -> bool:
        content, fds, _, _ = socket.recv_fds(self._control, MAX_PACKET, 1)
        if not content:
            return False
        request = json.loads(content)
        if request["do"] == "load":
            self._send(self._loaded(request))
        elif request["do"] == "fork":
            self._fork(request["number"], fds[0])
        elif request["do"] == "kill" and (pid := self._pids.get(request["number"])):
            _kill_group(pid)
        return True

    def _send(self, packet: Mapping[str, Any]) -> None:
        self._unsent.append(json.dumps(packet).encode())

    def _send_waiting(self) -> None:
        with suppress(BlockingIOError):
            while self._unsent:
                self._control.send(self._unsent[0], socket.MSG_DONTWAIT)
                self._unsent.popleft()

    def _loaded(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._max_memory_gib = request["max_memory_gib"]
        try:
            if request["tools"]:
                self._kind = loading.load_tools(request["tools"])
            else:
                self._kind = loading.load_environment(request["path"])
        except BaseException as error:  # noqa: BLE001 (the user's code may raise anything, SystemExit too)
            text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            return {"error": text[:MAX_TEXT], "traceback": traceback.format_exc()[-MAX_TEXT:]}
        finally:
            self._of_loading = set(own_children())
        gc.collect()
        gc.freeze()  # a collection in a forked process would copy every page that it shares
        return {"kind": self._kind.name, "is_agent": isinstance(self._kind, AgentProgram)}

    def _fork(self, number: int, fd: int) -> None:
        assert self._kind is not None, "asked for a process before anything was loaded"
        nursery = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # no more processes, or no memory
            os.close(fd)
            self._send({"not_forked": number, "why": str(error)})
            return
        if pid:
            os.close(fd)
            with suppress(OSError):  # both processes make it a group, so that it is one before either continues
                os.setpgid(pid, pid)
            self._numbers[pid], self._pids[number] = number, pid
            self._send({"forked": number})
            return
        code = 1
        try:
            os.setpgid(0, 0)
            confined.end_with_parent(nursery)
            adopt_orphans()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            confined.limit_memory(self._max_memory_gib)
            serve(self._kind, socket.socket(fileno=fd))
            code = 0
        except BaseException:  # noqa: BLE001 (nothing of this process may return into the nursery's loop)
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        has_ended = False
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                has_ended = True
                if (number := self._numbers.pop(pid, None)) is not None:
                    del self._pids[number]
                    _kill_group(pid)  # what it has started in its group
                    self._send({"ended": number, "code": os.waitstatus_to_exitcode(status)})
        if has_ended or self._has_orphans:
            orphans = set(own_children()) - self._numbers.keys() - self._of_loading
            self._has_orphans = self._orphans.go_on(orphans)


def _kill_group(pid: int) -> None:
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
