"""Launch a run: the watchdog, Ray, and workers that load libraries while this process still reads and checks.

This module imports nothing heavy before Ray starts.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from verl_like.backends.rollout import remove_leftovers
from verl_like.checks.cpu_workers import shares_of
from verl_like.checks.pools import CRITIC, REF, ROLLOUT, TRAINER, pool_sizes
from verl_like.checks.rules import check_devices
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import Announcer, Interrupt
from verl_like.controller.node_watchdogs import node_watchdogs
from verl_like.controller.placement import Devices, Placement, devices, pool_of, ray_cluster
from verl_like.controller.ray_calls import calls_recorded
from verl_like.controller.verdicts import Verdicts
from verl_like.controller.wait import Meanwhile
from verl_like.imports import importing
from verl_like.runs.folder import RunFolder
from verl_like.runs.forks import Forks
from verl_like.telemetry.heartbeat import heartbeat_folder
from verl_like.telemetry.ledger import stage
from verl_like.telemetry.startup import Startup
from verl_like.watchdog.guard import watchdog
from verl_like.workers.environment import worker_environment

if TYPE_CHECKING:
    from verl_like.controller.worker_group import WorkerGroup


@dataclass(frozen=True, slots=True)
class LaunchedRun:
    """The processes of a run before they have roles."""

    where: Devices  # of the workers that train
    run_id: str  # part of every name that the run shares with others on a machine
    workers: WorkerGroup  # one for each of these devices
    engines: EngineWorkers | None = None  # of rollout engines that have separate workers
    others: Mapping[str, WorkerGroup] = field(default_factory=dict)  # of other roles that have separate workers

    @property
    def pools(self) -> frozenset[str]:
        """The roles that have separate workers."""
        return frozenset({*self.others, *[ROLLOUT] * (self.engines is not None)})


class EngineWorkers:
    """The workers of rollout engines; each engine's can be started and ended while the run lasts.

    Args:
        open_group: starts the workers of an engine with this name, and ends them on exit.
    """

    def __init__(self, open_group: Callable[[str], AbstractContextManager[WorkerGroup]]) -> None:
        self._open_group = open_group
        self._entered: dict[WorkerGroup, ExitStack] = {}
        self._num_started = 0

    @property
    def groups(self) -> list[WorkerGroup]:
        return list(self._entered)

    def start(self) -> WorkerGroup:
        """Start the workers of another engine."""
        with ExitStack() as entered:
            group = entered.enter_context(self._open_group(f"engine {self._num_started}"))
            self._entered[group] = entered.pop_all()
        self._num_started += 1
        return group

    def end(self, group: WorkerGroup) -> None:
        """End the workers of an engine."""
        self._entered.pop(group).close()

    def close(self) -> None:
        """End the workers of all engines."""
        for group in self.groups:
            self.end(group)


class Launcher:
    """Launches a run before its data and its number of steps are known."""

    def __init__(self) -> None:
        self._offered: tuple[ExitStack, ExitStack, LaunchedRun] | None = None

    @contextmanager
    def launching(self, config: Config, *, generates: bool) -> Iterator[None]:
        """Launch the run now, for the first call of :meth:`launched`; end it on exit if no call was made.

        Args:
            generates: whether workers will have rollout engines.
        """
        with ExitStack() as begun, ExitStack() as start:
            run = begun.enter_context(_launch(config, generates=generates))
            start.enter_context(stage("start"))  # the watchdog allows any time for reading rows in this stage
            self._offered = begun, start, run
            try:
                yield
            finally:
                self._offered = None

    @contextmanager
    def launched(self, config: Config, *, generates: bool) -> Iterator[LaunchedRun]:
        """Give the run that was launched already, or a new one, and end it on exit."""
        if self._offered is None:
            with _launch(config, generates=generates) as run:
                yield run
            return
        (begun, start, run), self._offered = self._offered, None
        start.close()
        with begun.pop_all():
            yield run


@contextmanager
def ended_by(*steps: Callable[[], None]) -> Iterator[None]:
    """Run these steps on exit. They may take time, so an error is reported first."""
    try:
        yield
    except BaseException as error:
        current(Announcer).announce(error)
        raise
    finally:
        with stage("teardown"):
            for step in steps:
                step()


@contextmanager
def _launch(config: Config, *, generates: bool) -> Iterator[LaunchedRun]:
    """Start one process per device, which loads libraries; kill them on exit."""
    with _cluster(config, generates=generates) as (where, run_id, forks), ExitStack() as groups:
        groups.enter_context(ended_by(partial(remove_leftovers, run_id)))

        def started(name: str, of: Devices, *, backend: str) -> WorkerGroup:
            return groups.enter_context(_workers(config, name, of, run_id=run_id, backend=backend, forks=forks))

        backend = config.rollout.backend if generates else ""
        if not generates or not config.cluster.placement:
            yield LaunchedRun(where, run_id, started("worker", where, backend=backend))
            return
        sizes, engines = pool_sizes(config, where.world_size), None
        if ROLLOUT in sizes:
            engine = pool_of(where, config.rollout.tensor_parallel_size)
            engines = EngineWorkers(
                lambda name: _workers(config, name, engine, run_id=run_id, backend=backend, forks=forks)
            )
            groups.callback(engines.close)
            for _ in range(sizes[ROLLOUT] // engine.world_size):
                engines.start()
        training = pool_of(where, sizes[TRAINER])
        workers = started("worker", training, backend="" if engines is not None else backend)
        others = {
            name: started(name, pool_of(where, sizes[name]), backend="") for name in (REF, CRITIC) if name in sizes
        }
        yield LaunchedRun(training, run_id, workers, engines, others)


@contextmanager
def _workers(
    config: Config, name: str, where: Devices, *, run_id: str, backend: str, forks: Mapping[str, str]
) -> Iterator[WorkerGroup]:
    """Start a process on each of these devices, which loads the libraries of training or of a rollout backend.

    Args:
        forks: variables by which the processes are forked from the fork server; none without one.
    """
    from verl_like.controller.worker_group import WorkerGroup

    placement = Placement(where, timeout_s=config.cluster.start_timeout_s)
    workers = WorkerGroup(
        name,
        world_size=where.world_size,
        placement=placement,
        env={**worker_environment(config, where.kind, num_threads=where.num_threads), **forks},
        timeout_s=config.trainer.stage_timeout_s,
        heartbeats=str(heartbeat_folder(run_id)),
    )
    with ended_by(workers.shut_down, placement.remove):
        workers.prepare("verl_like.workers.hybrid:load_libraries", backend)
        yield workers


@contextmanager
def _cluster(config: Config, *, generates: bool) -> Iterator[tuple[Devices, str, Mapping[str, str]]]:
    """Join or start a Ray cluster whose devices fit the configuration, and a fork server where workers can be forked.

    Yields:
        The devices, the run's id, and the variables of workers that are to be forked.
    """
    run_id = uuid.uuid4().hex[:8]
    current(Interrupt).stop_before("start")
    current(Startup).now(
        f"joining the Ray cluster at {config.cluster.address}" if config.cluster.address else "starting Ray"
    )
    current(Verdicts).expect(acts=config.trainer.on_stall != "report")
    current(Meanwhile).first.clear()  # calls of a run that failed in this process
    stalls = RunFolder(config).path / "stalls"
    floor_s = config.trainer.stall_after_s
    with (
        current(Forks).started(config, generates=generates) as forks,
        watchdog(run_id, stalls, current(Verdicts), floor_s=floor_s, ends=config.trainer.on_stall != "report"),
        ray_cluster(config.cluster, run_id, meanwhile=_import_libraries),
        calls_recorded(bool(config.trainer.profile_steps)),
        node_watchdogs(
            run_id, stalls, current(Verdicts), floor_s=floor_s, start_timeout_s=config.cluster.start_timeout_s
        ),
        ended_by(),
    ):
        where = devices(config.cluster, shared_out=partial(shares_of, config))
        current(Interrupt).stop_before("start")
        check_devices(config, world_size=where.world_size, device=where.kind, cores=where.cores)
        yield where, run_id, forks


def _import_libraries() -> None:
    """Import the modules that this process needs as soon as Ray runs.

    PyTorch is imported later: until Ray runs, the fork server and Ray's services need all cores. When PyTorch was
    imported in parallel, Ray started after 2.6 s; without that it starts after 1.5.
    """
    with importing():
        importlib.import_module("verl_like.controller.worker_group")
