"""The Ray cluster of this process: check that its servers run, and leave or end it."""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

import psutil

from verl_like.call_threads import NoAnswer, RayThreads
from verl_like.context import current
from verl_like.controller.errors import Announcer, RayLost
from verl_like.machine.oom import OomKills
from verl_like.machine.shared_memory import SharedMemory

log = logging.getLogger(__name__)
T = TypeVar("T")

SERVERS = {"raylet": "raylet", "gcs_server": "GCS"}  # keyed by the names of their programs
CHECK_S = 0.5
STOPPED_S = 10.0  # a server may be stopped for this long, by a debugger for instance
FINAL_CALLS_S = 5.0  # for all calls at the end of a run, before Ray is ended
SHUTDOWN_S = 5.0
KILLED_S = 3.0  # until the kernel has freed a killed process's memory
CODE_S, POLL_S = 1.0, 0.01  # until the exit code of a zombie is known, and interval in which it is asked for
LAST_S = 30.0  # after a loss, for shutdown and the last messages of trackers
REMEDY = "The same command continues from the last checkpoint."


class Cluster:
    """A Ray that this process started, watches and ends, or one that it joined and only leaves.

    Args:
        started: the processes that this one started with Ray; they include no servers if Ray was joined.
        codes: as in :meth:`Health.trouble`.
    """

    def __init__(
        self, started: Sequence[psutil.Process], codes: Mapping[str, Callable[[], int | None]] | None = None
    ) -> None:
        self._servers = servers_among(started)
        self._codes, self._health = codes, Health()
        self.lost, self._started = False, started if self._servers else []
        self._why: RayLost | None = None
        self._lock, self._is_leaving, self._is_ending = threading.Lock(), False, False
        self._final_calls_s = FINAL_CALLS_S
        if self._servers:
            if missing := set(SERVERS.values()) - self._servers.keys():
                raise RayLost(f"Ray's {' and '.join(missing)} ended as soon as it had started. {REMEDY}")
            threading.Thread(target=self._watch, name="Ray's servers", daemon=True).start()

    def check(self) -> None:
        """Raise RayLost if the servers were lost."""
        if self._why is not None:
            raise self._why

    def lose(self, why: str) -> RayLost:
        """Stop all calls to Ray: report the loss, kill what can be killed already, and return the error.

        Even freeing a result can hang while another thread is stuck in the store's client. That thread holds the
        client's lock, and a thread that waits for this lock holds the interpreter lock. Only faulthandler's timer,
        which needs no interpreter lock, still fires then.
        """
        with self._lock:
            if self._why is not None:
                return self._why
            self._why, self.lost = RayLost(f"{why}. {REMEDY}"), True
        current(RayThreads).is_library_lost = True
        current(Announcer).announce(self._why)
        faulthandler.dump_traceback_later(LAST_S, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
        for process in self._members():
            if process not in self._servers.values():
                _kill(process)
        return self._why

    def call_at_end(self, what: str, call: Callable[[], T]) -> None:
        """Make a call at the end of a run, where a failure is no error; all such calls share a short time limit."""
        self._is_leaving = True
        if self.lost or self._final_calls_s <= 0:
            return
        started = time.monotonic()
        try:
            current(RayThreads).call(what, call, limit_s=self._final_calls_s)
        except Exception as error:  # noqa: BLE001 (Ray's own kinds of errors; the run has its result, or its error)
            log.debug("%s failed: %s", what, error)
        self._final_calls_s -= time.monotonic() - started

    def resume(self) -> None:
        """Reset the limits of :meth:`call_at_end`, because the cluster is used again."""
        self._final_calls_s, self._is_leaving = FINAL_CALLS_S, False

    def end(self, shut_down: Callable[[], None], is_connected: Callable[[], bool]) -> None:
        """Leave the cluster; if this process started it, end all its processes and their descendants."""
        self._is_ending = True
        members = self._members()

        def kill_servers() -> None:
            if not is_connected():  # Ray waits a second for each to end by SIGTERM, which our mask blocks in them
                for server in self._started:
                    _kill(server)

        try:
            if not self.lost:
                current(RayThreads).call("ray.shutdown", shut_down, limit_s=SHUTDOWN_S, check=kill_servers)
        except NoAnswer as error:
            log.debug("%s", error)
        finally:  # also after a second Ctrl-C
            self._kill(members)

    def _kill(self, members: list[psutil.Process]) -> None:
        # Ray's library ends this process if it notices the raylet's end during a call. If a call is in progress, the
        # raylet is left to the kernel, which kills it when the thread that started it ends.
        spared = [self._servers["raylet"]] if self._servers and current(RayThreads).is_busy else []
        doomed = [process for process in members if process not in spared]
        for process in doomed:
            _kill(process)
        _wait_ended(doomed, timeout_s=KILLED_S)
        if not self.lost and not current(RayThreads).is_busy:
            faulthandler.cancel_dump_traceback_later()

    def _members(self) -> list[psutil.Process]:
        """Return our servers, their descendants, and processes that detached from these."""
        if not self._started:
            return []
        found = {p.pid: p for server in self._started for p in [server, *_children(server)]}
        mark = str(self._servers["raylet"].pid)
        for process in psutil.process_iter():
            if process.pid not in found and _environment(process).get("RAY_RAYLET_PID") == mark:
                found[process.pid] = process
        found.pop(os.getpid(), None)
        return list(found.values())

    def _watch(self) -> None:
        with ExitStack() as opened:
            ended = select.poll()
            for server in self._servers.values():
                descriptor = os.pidfd_open(server.pid)
                opened.callback(os.close, descriptor)
                ended.register(descriptor, select.POLLIN)
            self._watch_servers(lambda: ended.poll(CHECK_S * 1000))

    def _watch_servers(self, pause: Callable[[], object]) -> None:
        while not self.lost and not self._is_ending:
            pause()
            if self._is_leaving:  # a loss during the shutdown does not matter
                time.sleep(CHECK_S)
                continue
            why = self._health.trouble(self._servers, self._codes)
            if why and not self._is_leaving and not self._is_ending:
                self.lose(why)


class Health:
    """Checks that Ray's servers run; a server may be stopped for a short while."""

    def __init__(self) -> None:
        self._stopped_s: dict[str, float] = {}
        self._checked_at = time.monotonic()
        self._oom_kills, self._shared_memory = OomKills(), SharedMemory()

    def trouble(
        self, servers: Mapping[str, psutil.Process], codes: Mapping[str, Callable[[], int | None]] | None = None
    ) -> str:
        """Return a message on the server that ended or was stopped for too long, else an empty one. Call it often.

        Args:
            servers: processes, keyed by their names in messages.
            codes: functions that return the exit codes of servers reaped by another caller, under the same keys.
        """
        now = time.monotonic()
        since_s, self._checked_at = (
            min(now - self._checked_at, CHECK_S),
            now,
        )  # time during which this process was stopped does not count
        self._shared_memory.check()  # the watchdog warns
        for name, server in list(servers.items()):  # servers are added while Ray starts
            status = _status(server)
            is_stopped = status == psutil.STATUS_STOPPED
            self._stopped_s[name] = self._stopped_s.get(name, 0.0) + since_s if is_stopped else 0.0
            who = f"Ray's {name} (process {server.pid})"
            if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                code = _exit_code(server, codes[name] if codes else lambda: None)
                return f"{who} {_how_ended(code)}{self._oom_kills.clause()}{self._shared_memory.clause()}"
            if self._stopped_s[name] >= STOPPED_S:
                return f"{who} has been stopped for {STOPPED_S:.0f} s"
        return ""


def servers_among(processes: Iterable[psutil.Process]) -> dict[str, psutil.Process]:
    """Return Ray's servers, keyed by their names in messages; servers that were already reaped are left out."""
    found = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if (program := process.name()) in SERVERS:
                found[SERVERS[program]] = process
    return found


def kill_tree(processes: Sequence[psutil.Process]) -> None:
    """Kill these processes and their descendants, after a Ray start that failed halfway."""
    for process in processes:  # suspended processes start no more children
        with suppress(psutil.Error):
            process.suspend()
    for process in [member for each in processes for member in [each, *_children(each)]]:
        _kill(process)


def _exit_code(server: psutil.Process, reaped: Callable[[], int | None]) -> int | None:
    """Return the exit code of an ended child in the form of ``subprocess``; None if it is unknown.

    It may be known a little later: a killed process is a zombie before the last of its threads has ended.

    Args:
        reaped: returns the code if another caller has reaped the child.
    """
    deadline = time.monotonic() + CODE_S
    while (code := _code_now(server.pid, reaped)) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return code


def _code_now(pid: int, reaped: Callable[[], int | None]) -> int | None:
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return reaped()
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _how_ended(code: int | None) -> str:
    if code is None:
        return "has ended, or was killed"
    if code >= 0:
        return f"has ended with status {code}"
    names = {int(each): each.name for each in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):  # ended already, or another user's
        return {}


def _wait_ended(processes: Sequence[psutil.Process], *, timeout_s: float) -> None:
    """Wait until these processes have ended, not until they are reaped: their parents do that."""
    deadline = time.monotonic() + timeout_s
    with ExitStack() as opened:
        ending = select.poll()
        left = set()
        for process in processes:
            with suppress(ProcessLookupError):  # it has ended
                descriptor = os.pidfd_open(process.pid)
                opened.callback(os.close, descriptor)
                ending.register(descriptor, select.POLLIN)
                left.add(descriptor)
        while left and (left_s := deadline - time.monotonic()) > 0:
            for descriptor, _ in ending.poll(1000 * left_s):
                ending.unregister(descriptor)
                left.remove(descriptor)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        pass
