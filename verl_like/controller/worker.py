"""The process of a worker: a thin Ray actor that hosts roles and reports failures with their location and time."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray

from verl_like.context import current
from verl_like.controller import ray_calls, rendezvous, signals
from verl_like.controller.blocks import Block, blocks_of
from verl_like.controller.dispatch import MethodCall
from verl_like.controller.errors import Interrupt, WorkerError, WorkerFailure
from verl_like.controller.fork_server.setup_worker import REFUSED_VARIABLE
from verl_like.controller.malloc_trim import MallocTrim
from verl_like.controller.remote_batch import RemoteRows
from verl_like.controller.store import Reply, StoreCounters
from verl_like.controller.streams import blocks_first
from verl_like.controller.worker_log import WorkerLog
from verl_like.imports import importing
from verl_like.protocol import check_columns
from verl_like.telemetry import stacks
from verl_like.telemetry.heartbeat import NAME_VARIABLE, Heartbeat
from verl_like.telemetry.ledger import Ledger, stage
from verl_like.telemetry.process_log import LOGGERS, ProcessLog
from verl_like.telemetry.process_usage import ProcessReport, Reporter
from verl_like.telemetry.profiler import Profiler

log = logging.getLogger(__name__)


class WorkerHost:
    """Builds a host object by name and calls methods of its roles, one at a time, plus one in parallel.

    Heavy imports happen in ``build``, after the process listens for ``kill -USR1`` and its environment is set; a forked
    process has made them already.
    """

    def __init__(self, rank: int) -> None:
        stacks.listen()
        signals.leave_to_driver()
        current(Ledger).rest("wait/driver")
        current(Heartbeat).start_from_environment(ray_calls.own_node)
        self._where = f"rank {rank} on {socket.gethostname()} (pid {os.getpid()})"
        self._roles: dict[str, Any] = {}
        self._has_mapped = False  # whether the last call of ``map`` succeeded
        self._log, self._reporter = WorkerLog(), Reporter()
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self._log)
        if reason := os.environ.get(REFUSED_VARIABLE):
            log.warning("this process imports its libraries itself, because it was not forked: %s", reason)

    @ray.method(concurrency_group="control")
    def listening_address(self) -> tuple[str, int]:
        """Return a rendezvous address on this node: its IP and a port that this process already listens on."""
        return rendezvous.own_address(), rendezvous.listen()

    @ray.method(concurrency_group="control")
    def status(self) -> dict[str, Any]:
        """Return the host and id of this process and its current stage; answers while a stage runs."""
        return {"where": self._where, "stage": current(Ledger).stage, "pid": os.getpid()}

    @ray.method(concurrency_group="control")
    def report(self) -> list[ProcessReport]:
        """Return the process's times and memory since its last report."""
        return [self._reporter.take()]

    @ray.method(concurrency_group="engine")
    def report_in_turn(self) -> list[ProcessReport]:
        """Report like :meth:`report`, after all earlier calls of the ``engine`` group."""
        return [self._reporter.take()]

    @ray.method(concurrency_group="control")
    def profile(self, folder: str) -> None:
        """Write traces of the following stages into this folder; an empty one stops tracing."""
        current(Profiler).write_to(folder, os.environ.get(NAME_VARIABLE, self._where))

    @ray.method(concurrency_group="control")
    def interrupt(self) -> None:
        """Let the running stage end early if it checks ``Interrupt``, because Ctrl-C reached the driver."""
        current(Interrupt).set()

    @ray.method(concurrency_group="engine")
    def prepare(self, function: str, *args: Any) -> None:
        """Call ``module:function``, which imports libraries; ``build`` fails again on, and reports, any error."""
        signals.let_through()  # Ray's threads have the signal mask of its servers
        with suppress(Exception), importing(), stage("build/libraries"):
            _named(function)(*args)

    @ray.method(concurrency_group="engine")
    def build(self, factory: str, environment: dict[str, str], *args: Any) -> list[str]:
        """Call ``module:function`` with ``args``, which returns the roles by class name; return its warnings."""
        signals.let_through()
        os.environ.update(environment)
        current(ProcessLog).keep_from_environment()
        with self._reporting(factory, "build"):
            self._roles = _named(factory)(*args)
        rendezvous.close()
        return self._log.take()

    @ray.method(concurrency_group="engine")
    def call(self, given: MethodCall, *values: Any) -> Any:
        """Call a method with ``values`` in front of its other arguments.

        They are not part of ``given``, because Ray replaces a reference by its value only among a call's own arguments.
        """
        with self._reporting_on(given):
            return Reply(self._method(given)(*values, *given.args, **given.kwargs), current(StoreCounters).take())

    @ray.method(concurrency_group="engine")
    def call_after_map(self, given: MethodCall) -> Any:
        """Call a method, or return None if the last call of :meth:`map` failed: the driver raises its error."""
        has_mapped, self._has_mapped = self._has_mapped, False
        return self.call(given) if has_mapped else None

    @ray.method(concurrency_group="background")
    def call_in_background(self, given: MethodCall) -> Any:
        """Call a method in parallel with the stages; its time is charged to no stage."""
        try:
            return self._method(given)(*given.args, **given.kwargs)
        except Exception as error:  # noqa: BLE001 (the border of the process)
            raise self._failure(given.title, error) from None

    @ray.method(concurrency_group="engine")
    def map(self, rows: RemoteRows, blocks: Sequence[Block], given: MethodCall) -> Any:
        """Call a method that returns (report, table).

        Returns:
            A reply of (report, warnings), followed by the table cut into ``blocks`` if there are any.
        """
        self._has_mapped = False
        with self._reporting_on(given):
            report, table = self._method(given)(rows, *given.args, **given.kwargs)
            if blocks:
                check_columns(table)
            self._has_mapped = True
            answer = Reply((report, self._log.take()), current(StoreCounters).take())
            return (answer, *blocks_of(table, blocks)) if blocks else answer

    @ray.method(concurrency_group="engine")
    def stream(self, rows: RemoteRows, given: MethodCall) -> Iterator[Any]:
        with self._reporting_on(given):
            yield from blocks_first(self._method(given)(rows, *given.args, **given.kwargs))

    def _method(self, given: MethodCall) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._roles[given.role], given.method)
        return method

    def _reporting_on(self, given: MethodCall) -> _Reporting:
        """Make the calls of ``given.before``; return the context in which ``given`` is to be called."""
        for each in given.before:
            with self._reporting(each.title, each.stage):
                self._method(each)(*each.args, **each.kwargs)
        return self._reporting(given.title, given.stage)

    def _reporting(self, what: str, stage_name: str) -> _Reporting:
        return _Reporting(partial(self._failure, what), stage_name)

    def _failure(self, what: str, error: Exception) -> WorkerFailure:
        return WorkerFailure(self._where, what, "".join(traceback.format_exception(error)), time.time())


def _named(function: str) -> Callable[..., Any]:
    """Return the function named by ``module:function``."""
    module, name = function.split(":")
    with importing():
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


class _Reporting:
    """Records the stage's time, and turns errors into a WorkerFailure that can cross the process border."""

    def __init__(self, failure: Callable[[Exception], WorkerFailure], stage_name: str) -> None:
        self._failure, self._stage = failure, stage(stage_name)
        self._traced = current(Profiler).traced(stage_name)

    def __enter__(self) -> None:
        self._stage.__enter__()
        self._traced.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._traced.__exit__(kind, error, trace)
        current(MallocTrim).trim_if_due()
        self._stage.__exit__(kind, error, trace)
        if isinstance(error, Exception) and not isinstance(error, WorkerError):  # that is a sentence for the user
            raise self._failure(error) from None


# Concurrency groups: `engine` for a step's calls, `background` for writes in parallel, `control` for calls answered any
# time. Not a decorator: Ray would pickle the class by value, with every global it names; a plain class travels by
# reference. No task events: Ray's control store keeps those of the last 100,000 calls, and a step makes about thirty
# (2.60).
NUM_THREADS = {"engine": 1, "background": 1, "control": 2}
WorkerProcess = ray.remote(concurrency_groups=NUM_THREADS, enable_task_events=False)(WorkerHost)
