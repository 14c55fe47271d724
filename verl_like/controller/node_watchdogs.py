"""Start watchdogs on the nodes other than the driver's, and collect their findings."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl_like.controller import ray_calls, signals
from verl_like.controller.errors import RunError, StageTimeout, WorkerError
from verl_like.controller.ray_calls import Call
from verl_like.controller.wait import wait
from verl_like.telemetry.heartbeat import of_node
from verl_like.watchdog.guard import Listener
from verl_like.watchdog.node import NodeWatchdog, Notice

log = logging.getLogger(__name__)
ASK_EVERY_S = 1.0
ANSWER_S = 20.0
CLOSE_S = 5.0
# Ray ends the child processes of a worker together with it; a watchdog must outlive its worker.
OUTLIVED = {"RAY_kill_child_processes_on_worker_exit": "false"}
SILENT, UNWATCHED = "does not answer", "has lost its watchdog"
DEAD = "is dead: the machine, or Ray's raylet there, has ended"
EXIT_S = 2.0  # for Ray to end a process that is no longer needed


class NodeListener(Listener, Protocol):
    """Receives the findings of the watchdogs, and the nodes whose watchdog does not answer."""

    def node(self, name: str, state: str) -> None:
        """Record a node's problem, phrased as the end of a sentence; an empty ``state`` clears it."""


class WatchdogProcess(NodeWatchdog):
    """Runs a node's watchdog in a process that only the driver ends."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        signals.leave_to_driver()

    def close(self) -> None:
        super().close()
        threading.Timer(EXIT_S, os._exit, (0,)).start()  # in case a stopped raylet does not end it


@dataclass(frozen=True, slots=True)
class _WatchdogHandle:
    """The driver's handle on a node's watchdog.

    Args:
        name: name of the node.
    """

    name: str
    handle: Any

    @property
    def who(self) -> str:
        return f"the watchdog of {self.name}"


# Not a decorator: Ray would pickle the class by value; a plain class travels by reference.
NodeWatchdogProcess = ray.remote(num_cpus=0, enable_task_events=False)(WatchdogProcess)


@contextmanager
def node_watchdogs(
    run_id: str, stalls: Path, listener: NodeListener, *, floor_s: float, start_timeout_s: float
) -> Iterator[None]:
    """Watch the processes on other nodes too; arguments as in :func:`verl_like.watchdog.guard.watchdog`."""
    here = ray_calls.own_node()
    others = {node["NodeID"]: node["NodeName"] for node in ray_calls.nodes() if node["NodeID"] != here}
    if not others:
        yield
        return
    watchdogs = {
        node: _WatchdogHandle(
            name,
            ray_calls.started(
                NodeWatchdogProcess,
                {
                    **ray_calls.early_environment(OUTLIVED),
                    "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
                },
                of_node(run_id, node),
                str(stalls.absolute()),
                floor_s,
            ),
        )
        for node, name in others.items()
    }
    _wait_for(watchdogs, timeout_s=start_timeout_s)
    is_over = threading.Event()
    polling = _Polling(watchdogs, listener)
    poller = threading.Thread(target=polling.run, args=(is_over,), name="watchdogs of other nodes", daemon=True)
    poller.start()
    try:
        yield
    finally:
        is_over.set()
        poller.join(CLOSE_S)
        ray_calls.make_final_calls([Call(watchdog.handle.close) for watchdog in watchdogs.values()], timeout_s=CLOSE_S)
        for watchdog in watchdogs.values():
            ray_calls.end(watchdog.handle)


def _wait_for(watchdogs: dict[str, _WatchdogHandle], *, timeout_s: float) -> None:
    """Return when the watchdogs run; report and drop those that cannot start."""
    polled = ray_calls.begun([Call(watchdog.handle.found) for watchdog in watchdogs.values()])
    for node, ref in zip(list(watchdogs), polled, strict=True):
        try:
            wait({ref: watchdogs[node].who}, stage="watchdog_start", timeout_s=timeout_s, interruptible=True)
        except (WorkerError, StageTimeout) as error:
            watchdog = watchdogs.pop(node)
            ray_calls.end(watchdog.handle)
            why = str(error).splitlines()[0]
            log.warning("%s did not start, and processes there are not watched: %s", watchdog.who, why)


class _Polling:
    """Polls each watchdog as soon as it has answered, and passes its findings on.

    Args:
        watchdogs: keyed by node id; watchdogs whose process has ended are removed.
    """

    def __init__(self, watchdogs: dict[str, _WatchdogHandle], listener: NodeListener) -> None:
        self._watchdogs, self._listener = watchdogs, listener
        self._asked: dict[str, tuple[ray.ObjectRef, float]] = {}  # by node: the pending answer and its start time
        self._silent: set[str] = set()
        self._gone: dict[str, str] = {}  # nodes whose watchdog has ended, and that Ray does not call dead yet -> name

    def run(self, is_over: threading.Event) -> None:
        try:
            while not is_over.wait(ASK_EVERY_S):
                self._ask()
                self._find_dead_nodes()
        except RunError as error:  # the driver's own calls report that Ray is lost
            log.debug("%s", error)

    def _ask(self) -> None:
        idle = [node for node in self._watchdogs if node not in self._asked]
        now = time.monotonic()
        polled = ray_calls.begun([Call(self._watchdogs[node].handle.found) for node in idle])
        self._asked |= {node: (ref, now) for node, ref in zip(idle, polled, strict=True)}
        ready, _ = ray_calls.split([ref for ref, _ in self._asked.values()], timeout_s=ASK_EVERY_S)
        for node, (ref, since) in list(self._asked.items()):
            if ref in ready:
                del self._asked[node]
                self._receive(node, ref)
            elif time.monotonic() - since >= ANSWER_S and node not in self._silent:
                self._silent.add(node)
                log.warning("%s has not answered for %.0f s", self._watchdogs[node].who, ANSWER_S)
                self._listener.node(self._watchdogs[node].name, SILENT)

    def _receive(self, node: str, ref: ray.ObjectRef) -> None:
        watchdog = self._watchdogs[node]
        try:
            notices = ray_calls.fetched([ref], timeout_s=ANSWER_S)[0]
        except ray.exceptions.RayError as error:
            del self._watchdogs[node]
            self._gone[node] = watchdog.name
            self._listener.node(watchdog.name, UNWATCHED)
            why = str(error).splitlines()[0]
            log.warning("%s has ended, and processes there are no longer watched: %s", watchdog.who, why)
            return
        if node in self._silent:
            self._silent.remove(node)
            log.warning("%s answers again", watchdog.who)
            self._listener.node(watchdog.name, "")
        _pass_on(watchdog.who, notices, self._listener)

    def _find_dead_nodes(self) -> None:
        if not self._gone:
            return
        alive = {node["NodeID"] for node in ray_calls.nodes()}
        for node in self._gone.keys() - alive:
            self._listener.node(self._gone.pop(node), DEAD)


def _pass_on(name: str, notices: list[Notice], listener: Listener) -> None:
    for notice in notices:
        if notice.who and not notice.text:
            listener.died_at_start(notice.who)
        elif notice.who:
            listener.died(notice.who, notice.text)
        elif notice.is_warning:
            log.warning("%s: %s", name, notice.text)
        else:
            log.error("%s: %s", name, notice.text)
            listener.stalled(notice.text, is_certain=notice.is_certain)
