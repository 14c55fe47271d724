"""Engines in separate workers, for the driver: they take prompts at any time, and weights between two steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from verl_like.backends.base import OnRunning, Sampling
from verl_like.config.schema import RolloutConfig
from verl_like.context import current
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.controller.streams import OpenStreams, Pair, polled
from verl_like.controller.wait import POLL_S, Meanwhile, driver_waits, timed_out, wait
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import Array
from verl_like.workers.actor import ActorRole
from verl_like.workers.groups import columns_of, refuse_differing
from verl_like.workers.messages import SyncReport
from verl_like.workers.sender import SenderRole
from verl_like.workers.served_engine import ServedEngineRole
from verl_like.workers.transfer import Meeting

Arrived = Callable[[Facts, BlockRef], None]


@dataclass(eq=False, kw_only=True, slots=True)
class Admission:
    """Prompts that were given to the engines together, until all their groups have arrived.

    Args:
        arrived: called with the facts and the block of some groups as soon as they exist.
        uids: of the prompts.
        waiting: rows of prompts that no engine has yet.
        at: the engine of each prompt that has not arrived, by row.
    """

    number: int
    prompts: RemoteBatch
    n: int
    sampling: Sampling
    step: int
    version: int
    first_sample: int
    arrived: Arrived
    waiting: deque[int]
    at: dict[int, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.waiting and not self.at

    @property
    def uids(self) -> Array:
        return self.prompts.facts["uid"]


@dataclass(frozen=True, slots=True)
class PooledEngine:
    """One engine: its ranks, and what it sends.

    Args:
        node: its node, numbered like the nodes of the training ranks; -1 if none of these is on it.
    """

    number: int
    group: WorkerGroup
    streams: OpenStreams
    node: int


class EnginePool:
    """The engines of a run that have separate workers.

    Args:
        engines: the workers of each.
        nodes: the node of each engine, as in :class:`PooledEngine`.
        trainer: the workers that send the weights.
        on_running: what a sync does with unfinished requests; REFUSE lets them finish first.
        assigns_by_queue: whether prompts wait until an engine has capacity; otherwise they are assigned round-robin at
            once, so that a run repeats.
    """

    def __init__(
        self,
        engines: Sequence[WorkerGroup],
        nodes: Sequence[int],
        trainer: WorkerGroup,
        rollout: RolloutConfig,
        *,
        on_running: OnRunning,
        assigns_by_queue: bool,
    ) -> None:
        self._trainer, self._rollout, self._on_running = trainer, rollout, on_running
        self._assigns_by_queue = assigns_by_queue
        self._engines = [
            PooledEngine(number, group, group.open_streams(ServedEngineRole.serve), node)
            for number, (group, node) in enumerate(zip(engines, nodes, strict=True))
        ]
        self._admissions: dict[int, Admission] = {}  # that are not complete, by number
        self._num_admitted = self._num_meetings = 0
        self._is_pumping = False
        self._meet()
        current(Meanwhile).work.append(self.pump)

    def close(self) -> None:
        """Take no more of what engines finish; their processes end with the run."""
        current(Meanwhile).work.remove(self.pump)

    def _meet(self) -> None:
        """Connect the trainer with the present engines."""
        size = self._rollout.tensor_parallel_size
        [(host, port)] = self._trainer.call(SenderRole.address)
        self._num_meetings += 1
        meeting = Meeting(host=host, port=port, number=self._num_meetings, size=1 + size * len(self._engines))
        joining = self._trainer.start(SenderRole.join, [(meeting,)] * self._trainer.world_size)
        for engine in self._engines:
            joining |= engine.group.start_in_background(
                ServedEngineRole.join_transfer, meeting, 1 + size * engine.number
            )
        wait(joining, stage="build", timeout_s=self._trainer.timeout_s)

    def columns_of(self, prompts: RemoteBatch, facts: Facts) -> frozenset[str]:
        return columns_of(prompts, facts)

    def generate(
        self, prompts: RemoteBatch, *, n: int, sampling: Sampling, step: int, version: int, first_sample: int
    ) -> Iterator[tuple[Facts, BlockRef]]:
        """Yield (facts, block) pairs as groups finish, as :meth:`RolloutGroup.generate` does."""
        found: deque[Pair] = deque()
        admission = self.admit(
            prompts,
            n=n,
            sampling=sampling,
            step=step,
            version=version,
            first_sample=first_sample,
            arrived=lambda facts, block: found.append((facts, block)),
        )
        while found or not admission.is_complete:
            self.wait_until(lambda: bool(found), [admission])
            while found:
                yield found.popleft()

    def admit(
        self,
        prompts: RemoteBatch,
        *,
        n: int,
        sampling: Sampling,
        step: int,
        version: int,
        first_sample: int,
        arrived: Arrived,
    ) -> Admission:
        """Start the samples of these prompts, and return while they run; others may be running."""
        self._num_admitted += 1
        admission = Admission(
            number=self._num_admitted,
            prompts=prompts,
            n=n,
            sampling=sampling,
            step=step,
            version=version,
            first_sample=first_sample,
            arrived=arrived,
            waiting=deque(range(len(prompts))),
        )
        self._admissions[admission.number] = admission
        self._assign()
        return admission

    def _assign(self) -> None:
        """Give waiting prompts to the engines that have capacity for them."""
        for admission in list(self._admissions.values()):  # others may arrive meanwhile
            if admission.waiting:
                self._send(admission, self._shares(admission))

    def _shares(self, admission: Admission) -> dict[int, list[int]]:
        """Take rows of waiting prompts for each engine."""
        shares: dict[int, list[int]] = {engine.number: [] for engine in self._engines}
        numbers = [engine.number for engine in self._engines]
        if not self._assigns_by_queue:
            for position, row in enumerate(admission.waiting):
                shares[numbers[position % len(numbers)]].append(row)
            admission.waiting.clear()
            return shares
        num_running = dict.fromkeys(numbers, 0)  # samples
        for each in self._admissions.values():
            for number in each.at.values():
                num_running[number] += each.n
        while admission.waiting:
            number = min(numbers, key=num_running.__getitem__)
            if num_running[number] and num_running[number] + admission.n > self._rollout.max_num_seqs:
                break
            num_running[number] += admission.n
            shares[number].append(admission.waiting.popleft())
        return shares

    def _send(self, admission: Admission, shares: dict[int, list[int]]) -> None:
        answers: dict[BlockRef, str] = {}
        for engine in self._engines:
            if not (rows := shares[engine.number]):
                continue
            admission.at.update(dict.fromkeys(rows, engine.number))
            [remote_rows] = admission.prompts.partition([np.array(rows)])
            answers |= engine.group.start_in_background(
                ServedEngineRole.admit,
                admission.number,
                remote_rows,
                admission.n,
                admission.sampling,
                admission.step,
                admission.version,
                admission.first_sample,
            )
        if answers:
            wait(answers, stage="rollout", timeout_s=self._trainer.timeout_s)

    def pump(self, timeout_s: float = 0.0) -> None:
        """Take what engines have finished, and give them what waits.

        Raises:
            WorkerError: an engine failed.
        """
        if self._is_pumping:  # what it calls waits, too
            return
        self._is_pumping = True
        try:
            for streams, pairs in polled([engine.streams for engine in self._engines], timeout_s=timeout_s):
                [engine] = [each for each in self._engines if each.streams is streams]
                for facts, block in pairs:
                    self._take(engine, facts, block)
            if any(admission.waiting for admission in self._admissions.values()):
                self._assign()
        finally:
            self._is_pumping = False

    def _take(self, engine: PooledEngine, facts: Facts, block: BlockRef) -> None:
        admission = self._admissions[int(facts["admission"][0])]
        for row in np.unique(facts["group_id"]).tolist():
            del admission.at[row]
        if admission.is_complete:
            del self._admissions[admission.number]
        own = {name: fact for name, fact in facts.items() if name not in ("writer", "admission")}
        admission.arrived(own | {"node": np.full(len(facts["writer"]), engine.node)}, block)

    def wait_until(
        self, is_done: Callable[[], bool], admissions: Sequence[Admission], *, stage: str = "rollout"
    ) -> None:
        """Return when the condition holds, which changes as these admissions' groups arrive.

        Raises:
            StageTimeout: it does not hold within the timeout of a stage.
            Interrupted: Ctrl-C.
        """
        timeout_s = self._trainer.timeout_s
        deadline = time.monotonic() + timeout_s
        watching: Callable[[list[str]], AbstractContextManager[None]] = driver_waits(stage, timeout_s).watching
        while not is_done():
            with watching([self._name(number) for number in {at for each in admissions for at in each.at.values()}]):
                self.pump(POLL_S)
            if time.monotonic() >= deadline and not is_done():
                raise timed_out(stage, timeout_s, [self._shown(each) for each in admissions if not each.is_complete])

    def _name(self, number: int) -> str:
        return self._engines[number].group.name

    def _shown(self, admission: Admission) -> str:
        """Return the prompts that have not arrived, for messages."""
        missing = sorted({*admission.at, *admission.waiting})
        names = ", ".join(str(admission.uids[row]) for row in missing[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        at = sorted({self._name(number) for number in admission.at.values()})
        return f"prompts {names}{more} (of weight version {admission.version}, on {', '.join(at) or 'no engine yet'})"

    def sync(self) -> SyncReport:
        """Send the actor's weights to the engines, as :meth:`RolloutGroup.sync` does."""
        sending = self._trainer.start(ActorRole.sync, [()] * self._trainer.world_size)
        receiving: dict[BlockRef, str] = {}
        for engine in self._engines:
            receiving |= engine.group.start_in_background(ServedEngineRole.receive, self._on_running)
        reports: list[SyncReport] = wait(sending | receiving, stage="sync", timeout_s=self._trainer.timeout_s)
        refuse_differing(reports)
        of_engines = reports[len(sending) :]
        return replace(
            reports[0],
            version=min(report.version for report in of_engines),
            seconds=max(report.seconds for report in reports),
            pause_s=max(report.pause_s for report in of_engines),
        )

    def sleep(self) -> None:
        """Do nothing: no other process uses the engines' accelerators."""
