"""WorkerGroup: a set of worker processes that are called together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.aggregator import AggregatorProcess
from verl_like.controller.blocks import Block, cut
from verl_like.controller.build_progress import BuildProgress
from verl_like.controller.dispatch import Dispatch, MethodCall, RemoteMethod, remote_method
from verl_like.controller.errors import Interrupted
from verl_like.controller.placement import Placement
from verl_like.controller.ray_calls import Call
from verl_like.controller.remote_batch import BlockRef, RemoteBatch, RemoteRows
from verl_like.controller.streams import OpenStreams, Pair
from verl_like.controller.transport import Direct, RankCall, Transport
from verl_like.controller.tree import LATE_S, Branch, Tree
from verl_like.controller.wait import Meanwhile, driver_waits, still_pending, wait, wait_in_background
from verl_like.controller.worker import WorkerHost, WorkerProcess
from verl_like.controller.worker_log import pass_on
from verl_like.protocol import Array
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE
from verl_like.telemetry.ledger import Ledger
from verl_like.telemetry.process_log import LOGS_VARIABLE, RunLogs

Method = Callable[..., Any]
MAX_BRANCHES = 16  # aggregators that the driver calls directly
INTERRUPT_TIMEOUT_S = 20.0  # a control call answers at once, unless the process holds the interpreter lock


class WorkerGroup:
    """``world_size`` processes that all host the same roles.

    A method is named by the function itself (``ActorRole.update``), so that an editor can follow the call; the role is
    the class it belongs to.

    Args:
        name: name of the group in messages.
        world_size: number of ranks.
        placement: bundle of each rank; None for light processes that need no accelerator.
        env: environment of the processes, set before Python starts.
        timeout_s: deadline of each call that has none of its own.
        heartbeats: folder of this run on every node, which the watchdog reads; empty for unwatched processes.
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
        self._direct = Direct(name, dict(enumerate(self._actors)))
        self._transport: Transport = self._direct
        self._aggregators: list[Branch] = []
        self._deferred: list[MethodCall] = []
        self._following: tuple[RemoteMethod, list[Call]] | None = None  # of call_after_next(), not made yet
        self._begun_calls: dict[RemoteMethod, dict[BlockRef, str]] = {}  # once made: their pending answers

    def _started(
        self, kind: Any, rank: int, *, name: str, num_devices: int, args: tuple[Any, ...], **kwargs: Any
    ) -> Any:
        """Start a process on the rank's node with this name set in its environment.

        Args:
            num_devices: resources of the process, in multiples of a worker's.
        """
        env = {**self._env, FOLDER_VARIABLE: self._heartbeats, NAME_VARIABLE: name}
        options = {**ray_calls.early_environment(env), "num_cpus": 0, "max_restarts": 0}
        if self._placement is not None:
            options["scheduling_strategy"] = self._placement.of(rank)
            options["num_cpus"] = num_devices * self._placement.per_worker["CPU"]
            options["num_gpus"] = num_devices * self._placement.per_worker.get("GPU", 0)
        return ray_calls.started(kind, options, *args, **kwargs)

    @property
    def world_size(self) -> int:
        return len(self._actors)

    def prepare(self, function: str, *args: Any) -> None:
        """Have every rank call this ``module:function`` as soon as it runs, before it is built."""
        calls = [RankCall(rank, WorkerHost.prepare, (function, *args)) for rank in range(self.world_size)]
        self._preparing = self._begun(calls)

    def build(self, factory: str, args_of_rank: Callable[[int], tuple[Any, ...]], *, timeout_s: float) -> None:
        """Rendezvous at rank 0, then start ``factory(*args_of_rank(rank))`` on every rank.

        :meth:`wait_built` waits for the builds.
        """
        asked = self._begun([RankCall(0, WorkerHost.listening_address)])
        [(host, port)] = wait(asked, stage="start", timeout_s=timeout_s)
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
            environment[LOGS_VARIABLE] = current(RunLogs).folder
            calls.append(RankCall(rank, WorkerHost.build, (factory, environment, *args_of_rank(rank))))
        self._building = self._begun(calls)

    def wait_built(self, *, timeout_s: float) -> None:
        """Return when every rank is built, or raise the earliest failure; report progress meanwhile."""
        if not self._building:
            return
        report = BuildProgress(dict(zip(self._building.values(), self._actors, strict=True))).report
        warnings = wait(self._building, stage="build", timeout_s=timeout_s, interruptible=True, meanwhile=report)
        pass_on(zip(self._building.values(), warnings, strict=True))
        self._preparing = self._building = {}
        if self._placement is not None and len(self._placement.nodes) > 1:
            self.use_tree(self._placement.nodes, timeout_s=timeout_s)

    def is_built(self) -> bool:
        """Return whether every rank is built, at once.

        Raises:
            WorkerError: a rank failed.
        """
        return not still_pending(self._building, stage="build")

    def use_tree(self, nodes: Sequence[range], *, timeout_s: float, most: int = MAX_BRANCHES) -> None:
        """Call the ranks through one aggregator per node from now on.

        With more than ``most`` nodes, a second level of aggregators is added: about the square root of their number.

        Args:
            nodes: the ranks of each node; together they are all ranks.
        """
        branches = [self._of_node(node) for node in nodes]
        top = branches if len(branches) <= most else self._of_branches(branches)
        self._aggregators = [*branches, *(branch for branch in top if branch not in branches)]
        starting = [Call(branch.handle.ready, who=branch.name) for branch in self._aggregators]
        wait(ray_calls.answers_of(starting, ray_calls.begun(starting)), stage="build", timeout_s=timeout_s)
        self._transport = Tree(top, late_s=2 * LATE_S)

    def _of_node(self, node: range) -> Branch:
        ranks = Direct(self.name, {rank: self._direct.actors[rank] for rank in node})
        return self._aggregator(f"the aggregator of {self._ranks_named(node)}", ranks, [node])

    def _of_branches(self, branches: Sequence[Branch]) -> list[Branch]:
        """Start about sqrt(n) aggregators for n branches, each on the first node of its branches."""
        found = []
        for part in np.array_split(np.arange(len(branches)), math.ceil(math.sqrt(len(branches)))):
            children = Tree([branches[index] for index in part])
            ranks = range(children.branches[0].first, children.leaves[-1][-1] + 1)
            name = f"the aggregator of nodes of {self._ranks_named(ranks)}"
            found.append(self._aggregator(name, children, children.leaves))
        return found

    def _aggregator(self, name: str, children: Direct | Tree, nodes: Sequence[range]) -> Branch:
        handle = self._started(
            AggregatorProcess,
            nodes[0][0],
            name=name,
            num_devices=0,
            args=({LOGS_VARIABLE: current(RunLogs).folder}, children),
            is_of_node=isinstance(children, Direct),
        )
        return Branch(name, handle, nodes)

    def _ranks_named(self, ranks: range) -> str:
        if len(ranks) == 1:
            return self._direct.who(ranks[0])
        return f"{self.name} ranks {ranks[0]} to {ranks[-1]}"

    def call(self, method: Method, *args: Any, interruptible: bool = False, **kwargs: Any) -> list[Any]:
        """Return the results of a BROADCAST method by rank, or the one result of a RANK_ZERO method."""
        of = remote_method(method, Dispatch.BROADCAST, Dispatch.RANK_ZERO)
        stage, timeout_s = _stage(of), self.timeout_s
        self._following = None
        if begun := self._begun_calls.pop(of, {}):
            return wait(begun, stage=stage, timeout_s=timeout_s, interruptible=interruptible)
        ranks = range(self.world_size if of.mode is Dispatch.BROADCAST else 1)
        before = self._take_deferred() if len(ranks) == self.world_size else ()
        given = MethodCall(stage, of.role, of.name, args, kwargs, before)
        of_ranks = [RankCall(rank, WorkerHost.call, (given,)) for rank in ranks]
        transport = self._transport if len(ranks) == self.world_size else self._direct
        calls = transport.calls(of_ranks, stage=stage, timeout_s=timeout_s)
        made = ray_calls.begun(calls)
        waiting, late_s = ray_calls.answers_of(calls, made), transport.late_s
        values = wait(waiting, stage=stage, timeout_s=timeout_s + late_s, interruptible=interruptible)
        return transport.answers(made, values)[0]

    def call_before_next(self, method: Method) -> None:
        """Have every rank call a BROADCAST method at the start of the next call to all ranks, which saves a call.

        An error that it raises ends that call.
        """
        of = remote_method(method, Dispatch.BROADCAST)
        self._deferred.append(MethodCall(_stage(of), of.role, of.name))

    def call_after_next(self, method: Method) -> bool:
        """Let each rank call a BROADCAST method as soon as its part of the next :meth:`map_rows` has succeeded.

        The ranks do not wait for the driver in between. The next :meth:`call` of the method returns the results. If no
        rows were mapped before, it makes the calls itself.

        Returns:
            False, without an effect, if aggregators call the ranks: they do not keep the order of calls.
        """
        if self._transport is not self._direct:
            return False
        of = remote_method(method, Dispatch.BROADCAST)
        given = MethodCall(of.name, of.role, of.name)  # the stage of the call that returns the results, not of this one
        of_ranks = [RankCall(rank, WorkerHost.call_after_map, (given,)) for rank in range(self.world_size)]
        self._following = of, self._direct.calls(of_ranks)
        return True

    def _take_deferred(self) -> list[MethodCall]:
        """Return the calls of :meth:`call_before_next`, and forget them."""
        deferred, self._deferred = self._deferred, []
        return deferred

    def call_in_background(self, method: Method, *, stage: str, check: Callable[[], None]) -> None:
        """Call a BROADCAST method on every rank in parallel with the step's calls, one such call at a time.

        For any thread except the driver's own.

        Args:
            stage: name of the stage in messages.
            check: called periodically; an error that it raises ends the wait.
        """
        wait_in_background(self.start_in_background(method), stage=stage, timeout_s=self.timeout_s, check=check)

    def start_in_background(self, method: Method, *args: Any) -> dict[BlockRef, str]:
        """Start a BROADCAST method on every rank in parallel with the step's calls; they run in the order of starts.

        Returns:
            References of the answers by rank, with names to wait for them.
        """
        of = remote_method(method, Dispatch.BROADCAST)
        given = MethodCall(_stage(of), of.role, of.name, args)
        calls = self._direct.calls(
            [RankCall(rank, WorkerHost.call_in_background, (given,)) for rank in range(self.world_size)]
        )
        return ray_calls.answers_of(calls, ray_calls.begun(calls))

    def start(self, method: Method, args_of_rank: Sequence[tuple[Any, ...] | None]) -> dict[BlockRef, str]:
        """Start a BROADCAST method with each rank's own arguments; skip a rank whose entry is None.

        Returns:
            References of the answers by rank, with names to wait for them. A reference among the arguments arrives as
            its value.
        """
        of = remote_method(method, Dispatch.BROADCAST)
        ranks = zip(range(self.world_size), args_of_rank, strict=True)
        given = MethodCall(_stage(of), of.role, of.name)
        of_ranks = [RankCall(rank, WorkerHost.call, (given, *args)) for rank, args in ranks if args is not None]
        calls = self._direct.calls(of_ranks)
        return ray_calls.answers_of(calls, ray_calls.begun(calls))

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

        The method takes ``(rows, *args)`` and returns ``(report, table)``. ``report`` is small and is returned to the
        driver; ``table`` has the columns ``adds`` for its rows and stays in the store.

        Args:
            partition: row indices of each rank; a rank may have none.
            blocks: row positions of each block that the rank of a group of one returns; by default each rank's rows are
                cut in their order.
            per_rank: an additional first argument; each rank receives its own entry.

        Returns:
            Each rank's report.
        """
        of = remote_method(method, Dispatch.SPLIT)
        assert blocks is None or self.world_size == 1, "only a group of one takes blocks"
        stage, transport, before = _stage(of), self._transport, self._take_deferred()
        of_ranks = []
        for rank, rows in enumerate(partition):
            own = () if per_rank is None else (per_rank[rank],)
            given = MethodCall(stage, of.role, of.name, (*own, *args), kwargs, before)
            of_ranks.append(RankCall(rank, WorkerHost.map, (given,), len(rows)))
        of_leaves = [np.concatenate([partition[rank] for rank in ranks]) for ranks in transport.leaves]
        cuts = [(blocks or cut(batch.facts, rows, adds)) if adds else [] for rows in of_leaves]
        calls = transport.calls(
            of_ranks, batch.slices(np.concatenate(of_leaves)), cuts, stage=stage, timeout_s=self.timeout_s
        )
        following, self._following = self._following, None
        made = ray_calls.begun([*calls, *(following[1] if following else ())])
        if following:
            self._begun_calls[following[0]] = ray_calls.answers_of(following[1], made[len(calls) :])
            made = made[: len(calls)]
        waiting, timeout_s = ray_calls.answers_of(calls, made), self.timeout_s + transport.late_s
        try:
            values = wait(waiting, stage=stage, timeout_s=timeout_s, interruptible=interruptible)
        except BaseException:
            self._begun_calls.clear()  # ranks skip these calls
            raise
        answers, refs = transport.answers(made, values)
        pass_on((self._direct.who(rank), warnings) for rank, (_, warnings) in enumerate(answers))
        if adds:
            parts = [rows[block] for rows, of_leaf in zip(of_leaves, cuts, strict=True) for block in of_leaf]
            batch.attach(adds, refs, parts, producer=of.name)
        return [report for report, _ in answers]

    def stream(
        self, method: Method, batch: RemoteBatch, partition: Sequence[Array], *args: Any, **kwargs: Any
    ) -> Iterator[Pair]:
        """Call a STREAM method on each rank's rows; yield (facts, block reference) pairs as they arrive.

        Together the ranks stream as many groups as the batch has rows.
        """
        of = remote_method(method, Dispatch.STREAM)
        stage, transport = _stage(of), self._transport
        given = MethodCall(stage, of.role, of.name, args, kwargs, self._take_deferred())
        of_ranks = [RankCall(rank, WorkerHost.stream, (given,), len(rows)) for rank, rows in enumerate(partition)]
        calls = transport.stream_calls(
            of_ranks,
            batch.slices(np.concatenate(partition)),
            num_groups=len(batch),
            stage=stage,
            timeout_s=self.timeout_s,
        )
        made = ray_calls.begun(calls)
        current(Meanwhile).begin()
        try:
            for pairs in transport.pairs(calls, made, driver_waits(stage, self.timeout_s + transport.late_s)):
                yield from pairs
        except Interrupted:
            # ray.cancel would take effect only at the next block, and at a different step on each rank of an engine.
            self.interrupt()
            raise

    def open_streams(self, method: Method) -> OpenStreams:
        """Call a STREAM method on every rank, without rows; the streams are polled while other calls run."""
        of = remote_method(method, Dispatch.STREAM)
        stage, nothing = _stage(of), RemoteRows((), np.empty(0, np.int32))
        given = MethodCall(stage, of.role, of.name)
        calls = self._direct.stream_calls(
            [RankCall(rank, WorkerHost.stream, (given,)) for rank in range(self.world_size)],
            lambda _: nothing,
            num_groups=0,
            stage=stage,
            timeout_s=self.timeout_s,
        )
        made = ray_calls.begun(calls)
        opened = driver_waits(stage, self.timeout_s).all
        return OpenStreams({stream: call.who for stream, call in zip(made, calls, strict=True)}, opened)

    def interrupt(self) -> None:
        """End the stream that each rank is running, permanently: an interrupted run streams no more."""
        wait(self._begun(self._calls_of_all(WorkerHost.interrupt)), stage="interrupt", timeout_s=INTERRUPT_TIMEOUT_S)

    def request_reports(self) -> dict[BlockRef, str]:
        """Request a report from every rank; return the pending lists of reports with the names of their ranks.

        A rank reports immediately, except if results of a call of :meth:`call_after_next` have not been read: then it
        reports after that call.
        """
        report = WorkerHost.report_in_turn if self._begun_calls else WorkerHost.report
        calls = self._transport.report_calls(self._calls_of_all(report))
        return ray_calls.answers_of(calls, ray_calls.begun(calls))

    def status(self, *, timeout_s: float) -> list[dict[str, Any]]:
        """Return the stage and process id of every rank; answers while a stage runs."""
        return wait(self._begun(self._calls_of_all(WorkerHost.status)), stage="status", timeout_s=timeout_s)

    def profile(self, folder: str) -> None:
        """Have every rank write traces of its stages into this folder; an empty one stops tracing."""
        calls = [RankCall(rank, WorkerHost.profile, (folder,)) for rank in range(self.world_size)]
        wait(self._begun(calls), stage="profile", timeout_s=self.timeout_s)

    def _begun(self, of_ranks: Sequence[RankCall]) -> dict[BlockRef, str]:
        """Make these calls directly; return the reference of each answer with its rank's name."""
        calls = self._direct.calls(of_ranks)
        return ray_calls.answers_of(calls, ray_calls.begun(calls))

    def _calls_of_all(self, method: Method) -> list[RankCall]:
        return [RankCall(rank, method) for rank in range(self.world_size)]

    def shut_down(self) -> None:
        """End every process now."""
        for actor in (*self._actors, *(branch.handle for branch in self._aggregators)):
            ray_calls.end(actor)


def _stage(of: RemoteMethod) -> str:
    """Return the stage that a call's time is charged to: the current stage of the step, else the method's name."""
    return of.name if current(Ledger).is_resting else current(Ledger).stage
