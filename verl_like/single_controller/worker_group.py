"""WorkerGroup: a set of worker processes that are called together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from verl_like.protocol import Array
from verl_like.single_controller import ray_calls
from verl_like.single_controller.blocks import cut
from verl_like.single_controller.build_progress import BuildProgress
from verl_like.single_controller.dispatch import Dispatch, RemoteMethod, remote_method
from verl_like.single_controller.errors import INTERRUPT, Interrupted
from verl_like.single_controller.placement import Placement
from verl_like.single_controller.ray_calls import Call
from verl_like.single_controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.single_controller.verdicts import VERDICTS
from verl_like.single_controller.wait import POLL_S, named, timed_out, wait
from verl_like.single_controller.worker import WorkerProcess
from verl_like.single_controller.worker_log import pass_on
from verl_like.telemetry.beacon import BEACON, FOLDER_VARIABLE, NAME_VARIABLE
from verl_like.telemetry.ledger import LEDGER

Method = Callable[..., Any]
# per stream, between looks at all of them: a look takes Ray a tenth of that, so a thousand streams cost little
PAUSE_S = 2e-5
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
        beacons: folder of this run on every node, where the watchdog looks; empty for processes that nobody watches.
    """

    def __init__(
        self,
        name: str,
        *,
        world_size: int,
        placement: Placement | None,
        env: dict[str, str],
        timeout_s: float,
        beacons: str = "",
    ) -> None:
        self.name, self._beacons = name, beacons
        self.timeout_s = timeout_s
        self._building: dict[BlockRef, str] = {}
        self._actors = [self._start(rank, placement, env) for rank in range(world_size)]

    def _start(self, rank: int, placement: Placement | None, env: dict[str, str]) -> Any:
        options: dict[str, Any] = {"runtime_env": {"env_vars": env}, "num_cpus": 0, "max_restarts": 0}
        if placement is not None:
            options["scheduling_strategy"] = placement.of(rank)
            options["num_cpus"] = placement.per_worker["CPU"]
            options["num_gpus"] = placement.per_worker.get("GPU", 0)
        return ray_calls.started(WorkerProcess, options, rank)

    def _begun(self, calls: Mapping[int, Call]) -> dict[Any, str]:
        """What each rank's call returns at once, with the rank's name."""
        return dict(zip(ray_calls.begun(list(calls.values())), map(self._who, calls), strict=True))

    @property
    def world_size(self) -> int:
        return len(self._actors)

    def _who(self, rank: int) -> str:
        return f"{self.name} rank {rank}"

    def build(self, factory: str, args_of_rank: Callable[[int], tuple[Any, ...]], *, timeout_s: float) -> None:
        """Rendezvous at rank 0, then start ``factory(*args_of_rank(rank))`` on every rank; :meth:`wait_built` waits for
        it.
        """
        asking = self._begun({0: Call(self._actors[0].held_address)})
        [(host, port)] = wait(asking, stage="start", timeout_s=timeout_s)
        calls = {}
        for rank, actor in enumerate(self._actors):
            rendezvous = {
                "RANK": rank,
                "WORLD_SIZE": self.world_size,
                "LOCAL_RANK": 0,
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                FOLDER_VARIABLE: self._beacons,
                NAME_VARIABLE: self._who(rank),
            }
            environment = {name: str(value) for name, value in rendezvous.items()}
            calls[rank] = Call(actor.build, (factory, environment, *args_of_rank(rank)))
        self._building = self._begun(calls)

    def wait_built(self, *, timeout_s: float) -> None:
        """Return when every rank is built, or raise the first one's failure; the start's line says how far they are."""
        told = BuildProgress(dict(zip(self._building.values(), self._actors, strict=True)))
        warnings = wait(self._building, stage="build", timeout_s=timeout_s, interruptible=True, meanwhile=told.look)
        pass_on(zip(self._building.values(), warnings, strict=True))
        self._building = {}

    def call(self, method: Method, *args: Any, interruptible: bool = False, **kwargs: Any) -> list[Any]:
        """Results of a BROADCAST method by rank, or the one result of a RANK_ZERO method."""
        of = remote_method(method, Dispatch.BROADCAST, Dispatch.RANK_ZERO)
        actors = self._actors if of.mode is Dispatch.BROADCAST else self._actors[:1]
        refs = self._begun(
            {rank: Call(actor.call, (_stage(of), of.role, of.name, *args), kwargs) for rank, actor in enumerate(actors)}
        )
        return wait(refs, stage=_stage(of), timeout_s=self.timeout_s, interruptible=interruptible)

    def start(self, method: Method, args_of_rank: Sequence[tuple[Any, ...] | None]) -> dict[BlockRef, str]:
        """Begin a BROADCAST method with each rank's own arguments, and not at all on a rank whose entry is None.

        Returns:
            References of the answers by rank, with names to wait for them; a reference among the arguments arrives as
            what it stands for.
        """
        of = remote_method(method, Dispatch.BROADCAST)
        ranks = enumerate(zip(self._actors, args_of_rank, strict=True))
        return self._begun(
            {
                rank: Call(actor.call, (_stage(of), of.role, of.name, *args))
                for rank, (actor, args) in ranks
                if args is not None
            }
        )

    def map_rows(
        self,
        method: Method,
        batch: RemoteBatch,
        partition: Sequence[Array],
        *args: Any,
        adds: frozenset[str] = frozenset(),
        blocks: Sequence[Array] | None = None,
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
        calls: list[Call] = []
        parts: list[Array] = []
        for rank, (actor, remote, rows) in enumerate(
            zip(self._actors, batch.partition(partition), partition, strict=True)
        ):
            own = () if per_rank is None else (per_rank[rank],)
            cuts = (blocks or cut(batch.facts, rows, adds)) if adds else []
            calls.append(
                Call(
                    actor.map,
                    (_stage(of), of.role, of.name, remote, cuts, *own, *args),
                    kwargs,
                    {"num_returns": 1 + len(cuts)},
                )
            )
            parts += [rows[place] for place in cuts]
        answers: dict[BlockRef, str] = {}
        refs: list[BlockRef] = []
        for rank, made in enumerate(ray_calls.begun(calls)):
            answer, *tables = made if isinstance(made, list) else [made]
            answers[answer] = self._who(rank)
            refs += tables
        arrived = wait(answers, stage=_stage(of), timeout_s=self.timeout_s, interruptible=interruptible)
        pass_on((who, warnings) for who, (_, warnings) in zip(answers.values(), arrived, strict=True))
        if adds:
            batch.attach(adds, refs, parts, producer=of.name)
        return [report for report, _ in arrived]

    def stream(
        self, method: Method, batch: RemoteBatch, partition: Sequence[Array], *args: Any, **kwargs: Any
    ) -> Iterator[tuple[Facts, BlockRef]]:
        """Call a STREAM method on each rank's rows and yield (facts, reference of the block) pairs as they appear."""
        of = remote_method(method, Dispatch.STREAM)
        streams = self._begun(
            {
                rank: Call(
                    actor.stream, (_stage(of), of.role, of.name, rows, *args), kwargs, {"num_returns": "streaming"}
                )
                for rank, (actor, rows) in enumerate(zip(self._actors, batch.partition(partition), strict=True))
            }
        )
        try:
            yield from self._pairs(dict(streams), _stage(of))
        except Interrupted:
            # ray.cancel would be noticed at the next block only, and at another step by each rank of an engine.
            self.interrupt()
            raise

    def _pairs(self, streams: dict[Any, str], name: str) -> Iterator[tuple[Facts, BlockRef]]:
        deadline = time.monotonic() + self.timeout_s
        facts_of: dict[Any, Facts] = {}
        while streams:
            with BEACON.waiting(named(streams.values())):
                ready = ray_calls.next_items(list(streams), timeout_s=POLL_S)
            INTERRUPT.stop_before(name)
            VERDICTS.check()
            if time.monotonic() >= deadline:
                raise timed_out(name, self.timeout_s, streams.values())
            facts_due: dict[Any, BlockRef] = {}
            for stream, ref in ready:
                if ref is None:
                    del streams[stream]
                elif stream in facts_of:
                    yield facts_of.pop(stream), ref
                else:  # a failure arrives as the stream's last item, where facts were due
                    facts_due[stream] = ref
            arrived = wait(
                {ref: streams[stream] for stream, ref in facts_due.items()}, stage=name, timeout_s=self.timeout_s
            )
            facts_of.update(zip(facts_due, arrived, strict=True))
            time.sleep(PAUSE_S * len(streams))

    def interrupt(self) -> None:
        """Have every rank end the stream it is busy with; for good, since a run that is interrupted streams no more."""
        refs = self._begun({rank: Call(actor.interrupt) for rank, actor in enumerate(self._actors)})
        wait(refs, stage="interrupt", timeout_s=INTERRUPT_TIMEOUT_S)

    def asked_for_reports(self) -> dict[BlockRef, str]:
        """A report on every rank, under way, with its name."""
        return self._begun({rank: Call(actor.report) for rank, actor in enumerate(self._actors)})

    def status(self, *, timeout_s: float) -> list[dict[str, Any]]:
        """Stage and process id of every rank; answers while a stage runs."""
        refs = self._begun({rank: Call(actor.status) for rank, actor in enumerate(self._actors)})
        return wait(refs, stage="status", timeout_s=timeout_s)

    def shut_down(self) -> None:
        """End every process now."""
        for actor in self._actors:
            ray_calls.end(actor)


def _stage(of: RemoteMethod) -> str:
    """What a call's time is booked to, here and there: the stage of the step that makes it, else its own name."""
    return of.name if LEDGER.is_resting else LEDGER.current
