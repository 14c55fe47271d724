"""Start a Ray from this process: watch it from its first server on, and give up if a server is lost."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import NodeID
from ray._private import node, ray_constants, services
from ray._raylet import GcsClient
from ray.core.generated.gcs_service_pb2 import GetAllNodeInfoRequest
from ray.exceptions import RpcError

from verl_like.call_threads import BLOCKED_SIGNALS, CallThreads, NoAnswer, RayThreads
from verl_like.context import current
from verl_like.controller import signals
from verl_like.controller.cluster import REMEDY, SERVERS, Health, kill_tree
from verl_like.controller.errors import Interrupt, Interrupted, RayLost
from verl_like.controller.fork_server import setup_worker

_start_ray_process = services.start_ray_process
_wait_for_persisted_port, _port_filename = node.wait_for_persisted_port, node.get_port_filename
_get_node = services.get_node
PYTHON_WORKERS = "--python_worker_command="
REGISTERED_S = 30.0  # limit on the wait until the raylet is registered in the GCS, as in Ray's own function
POLL_S = 0.01  # poll interval for the file in which the GCS records its port, and for the raylet's registration


@dataclass(slots=True)
class _AbandonedStarts:
    threads: list[CallThreads] = field(default_factory=list)  # those on which ``ray.init`` may still run


class RayStart:
    """Runs ``ray.init`` on its own thread and watches the servers that it starts.

    Args:
        init: calls ``ray.init``.
        marks: environment variables of every process that it starts, and of their descendants.

    Raises:
        RayLost: an earlier start in this process was given up and holds Ray's lock forever.
    """

    def __init__(self, init: Callable[[], object], marks: Mapping[str, str]) -> None:
        if any(threads.is_busy for threads in current(_AbandonedStarts).threads):
            raise RayLost("a start of Ray was given up in this process and still hangs: begin in a new process")
        self._marks = dict(marks)
        self._lock, self._is_given_up = threading.Lock(), False
        self._others = psutil.Process().children()
        self._servers: dict[str, psutil.Process] = {}
        self.codes: dict[str, Callable[[], int | None]] = {}  # exit codes of servers reaped by Ray's library
        self._health = Health()
        services.start_ray_process = self._start_process
        node.wait_for_persisted_port = self._wait_for_port
        services.get_node = self._node
        # Ray's servers inherit this thread's signal mask: on SIGTERM or SIGHUP to all processes, the driver ends them.
        # The thread makes no other call. Ray numbers the objects that a thread puts into the store per thread, and
        # threads that start a Ray use the same numbers. Two such threads in one process would give two objects one id
        # and mix up rows (2.60).
        self._threads = CallThreads("start of Ray", max_threads=1, blocked_signals=BLOCKED_SIGNALS)
        self._starting = self._threads.begin("ray.init", signals.with_own_handlers(init))

    def started(self) -> list[psutil.Process]:
        """Return the child processes started since, without those already reaped."""
        return [each for each in psutil.Process().children() if each not in self._others]

    def wait(self, timeout_s: float) -> None:
        """Return when Ray runs.

        Raises:
            RayLost: a server has ended or is stopped, or Ray itself gave up.
            NoAnswer: the timeout passed.
            Interrupted: Ctrl-C.
            ValueError, OSError: Ray's own errors on arguments and files.
        """
        try:
            self._starting.result(timeout_s, check=self._check)
            self._check()
        except (ValueError, RayLost, NoAnswer):
            raise
        except OSError as error:
            self._check_servers()
            if error.errno is not None:
                raise
            raise self._failed(error) from error
        except Exception as error:
            self._check_servers()
            raise self._failed(error) from error

    def _check(self) -> None:
        if current(Interrupt).is_set():
            raise Interrupted("start")
        self._check_servers()

    def _check_servers(self) -> None:
        if why := self._health.trouble(self._servers, self.codes):
            raise RayLost(f"{why} while Ray started. {REMEDY}")

    def _wait_for_port(self, session_dir: str, node_id: str, port_name: str, *, timeout_ms: int) -> Any:
        """Replace Ray's own function, which holds the interpreter lock for up to half a minute (2.60)."""
        deadline = time.monotonic() + timeout_ms / 1000
        path = Path(session_dir, _port_filename(node_id, port_name))
        while not path.exists() and time.monotonic() < deadline and not self._is_given_up:
            time.sleep(POLL_S)
        left_ms = 0 if self._is_given_up else max(int(1000 * (deadline - time.monotonic())), 0)
        return _wait_for_persisted_port(session_dir, node_id, port_name, timeout_ms=left_ms)

    def _node(self, gcs_address: str, node_id: str) -> Any:
        """Replace Ray's own function, which polls only once per second until a node is registered (2.60)."""
        deadline = time.monotonic() + REGISTERED_S
        selected = [GetAllNodeInfoRequest.NodeSelector(node_id=NodeID.from_hex(node_id).binary())]
        with suppress(RpcError):  # of an overloaded GCS; Ray's own function decides
            client = GcsClient(address=gcs_address)
            while not client.get_all_node_info(timeout=REGISTERED_S, node_selectors=selected):
                if time.monotonic() > deadline or self._is_given_up:
                    break
                time.sleep(POLL_S)
        return _get_node(gcs_address, node_id)

    def _failed(self, error: Exception) -> RayLost:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return RayLost(f"Ray did not start: {lines[0].removesuffix('.')}. {REMEDY}")

    def give_up(self) -> None:
        """End the processes that were started, and prevent further starts.

        The thread in ``ray.init`` holds Ray's lock while it waits for servers that no longer exist. A call to
        ``ray.shutdown`` would wait for this lock, and so would the exit hooks of Ray's library.
        """
        with self._lock:
            self._is_given_up = True
        current(_AbandonedStarts).threads.append(self._threads)
        current(RayThreads).is_library_lost = True
        atexit.unregister(ray.shutdown)
        kill_tree(self.started())

    def _start_process(
        self, command: list[str], process_type: str, *, env_updates: Mapping[str, str] | None = None, **options: Any
    ) -> Any:
        """Replace Ray's own function that starts its servers."""
        with self._lock:
            if self._is_given_up:
                raise RuntimeError("this start of Ray was given up")
            if process_type == "raylet":
                command = [with_own_setup(word) for word in command]
            variables = {**(env_updates or {}), **self._marks}
            found = _start_ray_process(command, process_type, env_updates=variables, **options)
            if (name := SERVERS.get(process_type)) is not None:
                self.codes[name] = lambda: found.process.returncode
                self._servers[name] = psutil.Process(found.process.pid)
            return found


def with_own_setup(word: str) -> str:
    """Return an argument of the raylet, by which it starts Python processes with our own program (2.60)."""
    own = setup_worker.__file__
    rays = Path(os.path.abspath(node.__file__)).with_name("workers") / ray_constants.SETUP_WORKER_FILENAME
    is_changed = word.startswith(PYTHON_WORKERS) and " " not in own  # Ray would have to quote it
    return word.replace(str(rays), own, 1) if is_changed else word
