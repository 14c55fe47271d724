"""WorkerGroup: a set of worker processes that are called together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from verl_like.controller import ray_calls
from verl_like.controller.blocks import Block
from verl_like.controller.build_progress import BuildProgress
from verl_like.controller.dispatch import Dispatch, RemoteMethod, remote_method
from verl_like.controller.errors import Interrupted
from verl_like.controller.hubs import Hub, begun_on
from verl_like.controller.leader import LeaderProcess
from verl_like.controller.placement import Placement
from verl_like.controller.rank_calls import RankCall, Ranks
from verl_like.controller.ray_calls import Call
from verl_like.controller.reach import ByHub, Dealt, Direct, Reach
from verl_like.controller.relay import RelayProcess
from verl_like.controller.remote_batch import BlockRef, RemoteBatch
from verl_like.controller.streams import Pair
from verl_like.controller.wait import wait, wait_beside
from verl_like.controller.worker import WorkerHost, WorkerProcess
from verl_like.controller.worker_log import pass_on
from verl_like.protocol import Array
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE
from verl_like.telemetry.ledger import LEDGER
from verl_like.telemetry.process_log import LOGS_VARIABLE, RUN_LOGS

Method = Callable[..., Any]
MAX_HUBS = 16  # that the driver speaks to itself
INTERRUPT_TIMEOUT_S = 20.0  # a control call answers at once, unless something holds the interpreter lock


class WorkerGroup:
    """``world_size`` processes, each hosting the same roles.

    A method is named by the function itself (``ActorRole.update``), so that an editor can follow the call; the role
    is the class it belongs to.

    Args:
        name: for messages.
        world_size: number of ranks.
        placement: bundle of each rank; None for light processes that need no accelerator.
        env: environment of the processes from their first instruction on.
        timeout_s: deadline of each call unless it brings its own.
        heartbeats: folder of this run on every node, where the watchdog looks; empty for processes that nobody watches.
    """

    def __init__(
        self,
        name: str,
        *,
        world_size: int,
        placement: Placement | None,
        env: dict[str, str],
        timeout_s: float,
        heartbeats: str = "",
    ) -> None:
        self.name, self._heartbeats = name, heartbeats
        self.timeout_s, self._placement, self._env = timeout_s, placement, env
        self._preparing: dict[BlockRef, str] = {}
        self._building: dict[BlockRef, str] = {}
        self._actors = [
            self._started(WorkerProcess, rank, name=f"{name} rank {rank}", num_devices=1, args=(rank,))
            for rank in range(world_size)
        ]
        self._ranks = Ranks(name, dict(enumerate(self._actors)))
        self._direct = Direct(self._ranks, timeout_s=timeout_s)
        self._reach: Reach = self._direct
        self._hubs: list[Hub] = []

    def _started(self, kind: Any, rank: int, *, name: str, num_devices: int, args: tuple[Any, ...]) -> Any:
        """A process on the rank's node, known by this name from its first instruction on.

        Args:
            num_devices: how many of what a worker takes.
        """
        env = {**self._env, FOLDER_VARIABLE: self._heartbeats, NAME_VARIABLE: name}
        options = {**ray_calls.from_the_first_instruction(env), "num_cpus": 0, "max_restarts": 0}
        if self._placement is not None:
            options["scheduling_strategy"] = self._placement.of(rank)
            options["num_cpus"] = num_devices * self._placement.per_worker["CPU"]
            options["num_gpus"] = num_devices * self._placement.per_worker.get("GPU", 0)
        return ray_calls.started(kind, options, *args)

    @property
    def world_size(self) -> int:
        return len(self._actors)

    def prepare(self, function: str, *args: Any) -> None:
        """Have every rank call this ``module:function`` as soon as it lives, before it is built."""
        calls = [RankCall(rank, WorkerHost.prepare, (function, *args)) for rank in range(self.world_size)]
        self._preparing, _ = self._ranks.begun(calls)

    def build(self, factory: str, args_of_rank: Callable[[int], tuple[Any, ...]], *, timeout_s: float) -> None:
        """Rendezvous at rank 0, then start ``factory(*args_of_rank(rank))`` on every rank; :meth:`wait_built` waits for
        it.
        """
        asking, _ = self._ranks.begun([RankCall(0, WorkerHost.held_address)])
        [(host, port)] = wait(asking, stage="start", timeout_s=timeout_s)
        calls = []
        for rank in range(self.world_size):
            rendezvous = {
                "RANK": rank,
                "WORLD_SIZE": self.world_size,
                "LOCAL_RANK": 0,
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
            }
            environment = {name: str(value) for name, value in rendezvous.items()}
            environment[LOGS_VARIABLE] = RUN_LOGS.folder
            calls.append(RankCall(rank, WorkerHost.build, (factory, environment, *args_of_rank(rank))))
        self._building, _ = self._ranks.begun(calls)

    def wait_built(self, *, timeout_s: float) -> None:
        """Return when every rank is built, or raise the first one's failure; the start's line says how far they are."""
        told = BuildProgress(dict(zip(self._building.values(), self._actors, strict=True)))
        warnings = wait(self._building, stage="build", timeout_s=timeout_s, interruptible=True, meanwhile=told.look)
        pass_on(zip(self._building.values(), warnings, strict=True))
        self._preparing = self._building = {}
        if self._placement is not None and len(self._placement.nodes) > 1:
            self.relay(self._placement.nodes, timeout_s=timeout_s)

    def relay(self, nodes: Sequence[range], *, timeout_s: float, most: int = MAX_HUBS) -> None:
        """From now on speak to a relay on each of these nodes, which have all ranks between them; where these are more
        than ``most``, to leaders of about as many relays as there are leaders.
        """
        relays = []
        for node in nodes:
            ranks = self._ranks.only(node)
            name, args = ranks.relay_name, ({LOGS_VARIABLE: RUN_LOGS.folder}, ranks)
            handle = self._started(RelayProcess, ranks.first, name=name, num_devices=0, args=args)
            relays.append(Hub(name, handle, [node]))
        hubs = relays if len(relays) <= most else self._led(relays)
        self._hubs = [*relays, *(hub for hub in hubs if hub not in relays)]
        starting = begun_on(self._hubs, [Call(hub.handle.ready) for hub in self._hubs])
        wait(starting, stage="build", timeout_s=timeout_s)
        self._reach = ByHub(hubs, timeout_s=self.timeout_s)

    def _led(self, relays: Sequence[Hub]) -> list[Hub]:
        """Leaders of these relays, about as many as each has relays; each on its first node."""
        parts = np.array_split(np.arange(len(relays)), math.ceil(math.sqrt(len(relays))))
        return [self._leader([relays[index] for index in part]) for part in parts]

    def _leader(self, relays: Sequence[Hub]) -> Hub:
        nodes = [node for relay in relays for node in relay.nodes]
        name = f"the leader of {self.name} ranks {nodes[0][0]} to {nodes[-1][-1]}"
        args = {LOGS_VARIABLE: RUN_LOGS.folder}, relays
        return Hub(name, self._started(LeaderProcess, nodes[0][0], name=name, num_devices=0, args=args), nodes)

    def call(self, method: Method, *args: Any, interruptible: bool = False, **kwargs: Any) -> list[Any]:
        """Results of a BROADCAST method by rank, or the one result of a RANK_ZERO method."""
        of = remote_method(method, Dispatch.BROADCAST, Dispatch.RANK_ZERO)
        ranks = range(self.world_size if of.mode is Dispatch.BROADCAST else 1)
        calls = [RankCall(rank, WorkerHost.call, (_stage(of), of.role, of.name, *args), kwargs) for rank in ranks]
        reach = self._reach if len(calls) == self.world_size else self._direct
        return reach.answers(calls, stage=_stage(of), interruptible=interruptible)

    def call_beside(self, method: Method, *, stage: str, look: Callable[[], None]) -> None:
        """Call a BROADCAST method on every rank beside the calls of the step, one such call at a time; from any thread
        but the driver's own.

        Args:
            stage: for messages.
            look: done now and then; what it raises ends the wait.
        """
        of = remote_method(method, Dispatch.BROADCAST)
        calls = [RankCall(rank, WorkerHost.beside, (stage, of.role, of.name)) for rank in range(self.world_size)]
        wait_beside(self._ranks.begun(calls)[0], stage=stage, timeout_s=self.timeout_s, look=look)

    def start(self, method: Method, args_of_rank: Sequence[tuple[Any, ...] | None]) -> dict[BlockRef, str]:
        """Begin a BROADCAST method with each rank's own arguments, and not at all on a rank whose entry is None.

        Returns:
            References of the answers by rank, with names to wait for them; a reference among the arguments arrives as
            what it stands for.
        """
        of = remote_method(method, Dispatch.BROADCAST)
        ranks = zip(range(self.world_size), args_of_rank, strict=True)
        calls = [
            RankCall(rank, WorkerHost.call, (_stage(of), of.role, of.name, *args))
            for rank, args in ranks
            if args is not None
        ]
        return self._ranks.begun(calls)[0]

    def map_rows(
        self,
        method: Method,
        batch: RemoteBatch,
        partition: Sequence[Array],
        *args: Any,
        adds: frozenset[str] = frozenset(),
        blocks: Sequence[Block] | None = None,
        per_rank: Sequence[Any] | None = None,
        interruptible: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Call a SPLIT method on each rank's rows and attach the columns it adds.

        The method takes ``(rows, *args)`` and returns ``(report, table)``; ``report`` is small and comes back to the
        driver, ``table`` has the columns ``adds`` for its rows and stays in the store.

        Args:
            partition: row indices of each rank; a rank may have none.
            blocks: positions among the rows, of each block that rank 0 of a group of one returns; else each rank's rows
                are cut in order.
            per_rank: one more first argument, of which each rank receives its own entry.

        Returns:
            Each rank's report.
        """
        of = remote_method(method, Dispatch.SPLIT)
        calls = []
        for rank, rows in enumerate(partition):
            own = () if per_rank is None else (per_rank[rank],)
            calls.append(RankCall(rank, WorkerHost.map, (_stage(of), of.role, of.name, *own, *args), kwargs, len(rows)))
        found = self._reach.mapped(
            calls, Dealt(batch, partition), adds=adds, blocks=blocks, stage=_stage(of), interruptible=interruptible
        )
        pass_on((self._ranks.who(rank), warnings) for rank, (_, warnings) in enumerate(found.answers))
        if adds:
            batch.attach(adds, found.refs, found.parts, producer=of.name)
        return [report for report, _ in found.answers]

    def stream(
        self, method: Method, batch: RemoteBatch, partition: Sequence[Array], *args: Any, **kwargs: Any
    ) -> Iterator[Pair]:
        """Call a STREAM method on each rank's rows and yield (facts, reference of the block) pairs as they appear.

        Ranks stream as many groups as there are rows in the batch, in all.
        """
        of = remote_method(method, Dispatch.STREAM)
        given = _stage(of), of.role, of.name, *args
        calls = [RankCall(rank, WorkerHost.stream, given, kwargs, len(rows)) for rank, rows in enumerate(partition)]
        try:
            yield from self._reach.pairs(calls, Dealt(batch, partition), stage=_stage(of))
        except Interrupted:
            # ray.cancel would be noticed at the next block only, and at another step by each rank of an engine.
            self.interrupt()
            raise

    def interrupt(self) -> None:
        """Have every rank end the stream it is busy with; for good, since a run that is interrupted streams no more."""
        refs, _ = self._ranks.begun(self._calls_of_all(WorkerHost.interrupt))
        wait(refs, stage="interrupt", timeout_s=INTERRUPT_TIMEOUT_S)

    def asked_for_reports(self) -> dict[BlockRef, str]:
        """A report on every rank, under way: lists of reports, with the names of the ranks in each."""
        return self._reach.reports(self._calls_of_all(WorkerHost.report))

    def status(self, *, timeout_s: float) -> list[dict[str, Any]]:
        """Stage and process id of every rank; answers while a stage runs."""
        refs, _ = self._ranks.begun(self._calls_of_all(WorkerHost.status))
        return wait(refs, stage="status", timeout_s=timeout_s)

    def profile(self, folder: str) -> None:
        """Have every rank write traces of its stages into this folder from now on, until it is given an empty one."""
        calls = [RankCall(rank, WorkerHost.profile, (folder,)) for rank in range(self.world_size)]
        wait(self._ranks.begun(calls)[0], stage="profile", timeout_s=self.timeout_s)

    def _calls_of_all(self, method: Method) -> list[RankCall]:
        return [RankCall(rank, method) for rank in range(self.world_size)]

    def shut_down(self) -> None:
        """End every process now."""
        for actor in (*self._actors, *(hub.handle for hub in self._hubs)):
            ray_calls.end(actor)


def _stage(of: RemoteMethod) -> str:
    """What a call's time is booked to, here and there: the stage of the step that makes it, else its own name."""
    return of.name if LEDGER.is_resting else LEDGER.current
