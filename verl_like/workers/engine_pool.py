"""Engines in separate workers, for the driver: they take prompts at any time, and weights between two steps."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from verl_like.backends.base import OnRunning, Sampling
from verl_like.config.schema import RolloutConfig
from verl_like.context import current
from verl_like.controller.errors import WorkerError
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.controller.streams import Pair, polled
from verl_like.controller.wait import MAX_NAMED, POLL_S, Meanwhile, driver_waits, still_pending, timed_out, wait
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import Array
from verl_like.workers.actor import ActorRole
from verl_like.workers.admission_limit import AdmissionLimit
from verl_like.workers.engine_members import EngineMembers, PooledEngine
from verl_like.workers.groups import columns_of, refuse_differing
from verl_like.workers.messages import Event, SyncReport
from verl_like.workers.repeated_schedule import RepeatedSchedule
from verl_like.workers.served_engine import ServedEngineRole

Arrived = Callable[[Facts, BlockRef], None]
_OF_BLOCK = frozenset({"writer", "admission", "is_under_pressure"})  # facts of a block, which its rows do not keep


@dataclass(eq=False, kw_only=True, slots=True)
class Admission:
    """Prompts that were given to the engines together, until all their groups have arrived.

    Args:
        arrived: called with the facts and the block of some groups as soon as they exist.
        version: of the weights when they were admitted.
        waiting: rows of prompts that no engine has.
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
    at: dict[int, PooledEngine] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.waiting and not self.at

    def rows_of(self, groups: Array) -> list[int]:
        """Return the rows of these groups, which ascend in the prompts."""
        found: list[int] = np.searchsorted(self.prompts.facts["group_id"], np.unique(groups)).tolist()
        return found

    @property
    def missing(self) -> str:
        """The prompts that have not arrived, for messages."""
        rows = sorted({*self.at, *self.waiting})
        uids = ", ".join(str(self.prompts.facts["uid"][row]) for row in rows[:MAX_NAMED])
        more = f" and {len(rows) - MAX_NAMED} more" if len(rows) > MAX_NAMED else ""
        engines = ", ".join(sorted({engine.name for engine in self.at.values()})) or "no engine yet"
        return f"prompts {uids}{more} (admitted at weight version {self.version}; {engines})"


class EnginePool:
    """The engines of a run that have separate workers.

    An engine that is lost is replaced, and its prompts are generated again. It takes part from the next sync on.

    Args:
        members: the engines.
        trainer: the workers that send the weights.
        on_running: what a sync does with unfinished requests; REFUSE lets them finish first.
        assigns_by_queue: whether prompts wait until an engine has capacity, which is ``rollout.max_num_seqs`` or what
            its KV cache has shown to hold; otherwise they are assigned round-robin at once, so that a run repeats.
        wanted_workers: returns the number of workers that a user has asked for meanwhile, or None.
    """

    def __init__(
        self,
        members: EngineMembers,
        trainer: WorkerGroup,
        rollout: RolloutConfig,
        *,
        on_running: OnRunning,
        assigns_by_queue: bool,
        wanted_workers: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._members, self._trainer, self._rollout, self._on_running = members, trainer, rollout, on_running
        self._assigns_by_queue, self._wanted_workers = assigns_by_queue, wanted_workers
        self._admissions: dict[int, Admission] = {}  # that are not complete, by number
        self._limits: dict[PooledEngine, AdmissionLimit] = defaultdict(lambda: AdmissionLimit(rollout.num_seqs))
        self._num_admitted, self._num_syncs, self._version = 0, 0, -1
        self._events: dict[str, list[Event]] = {}
        self._repeated = RepeatedSchedule({})
        self._is_pumping = self._is_syncing = False
        current(Meanwhile).work.append(self.pump)

    def close(self) -> None:
        """Take no more of what engines finish; their processes end with the run."""
        current(Meanwhile).work.remove(self.pump)

    def columns_of(self, prompts: RemoteBatch, facts: Facts) -> frozenset[str]:
        return columns_of(prompts, facts) | {"weight_version"}

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
        """Give waiting prompts to the engines that have capacity for them, if their weights are not just changing."""
        if self._is_syncing:
            return
        for admission in list(self._admissions.values()):  # others may arrive meanwhile
            if not admission.waiting:
                continue
            if ready := [engine for engine in self._members.present if engine.has_weights]:
                for engine, rows in self._shares(admission, ready):
                    self._send(admission, engine, rows)

    def _shares(self, admission: Admission, engines: Sequence[PooledEngine]) -> list[tuple[PooledEngine, list[int]]]:
        """Take rows of waiting prompts for these engines."""
        if not self._repeated.is_over(self._num_syncs):
            return [
                (engine, rows)
                for engine in engines
                for rows in self._repeated.take(engine.name, admission.number, self._num_syncs, admission.waiting)
            ]
        shares: dict[PooledEngine, list[int]] = {engine: [] for engine in engines}
        if not self._assigns_by_queue:
            for position, row in enumerate(admission.waiting):
                shares[engines[position % len(engines)]].append(row)
            admission.waiting.clear()
            return list(shares.items())
        num_running = dict.fromkeys(self._members.present, 0)  # samples
        for each in self._admissions.values():
            for engine in each.at.values():
                num_running[engine] += each.n
        while admission.waiting:
            engine = min(engines, key=lambda each: num_running[each] - self._limits[each].samples)
            if num_running[engine] and num_running[engine] + admission.n > self._limits[engine].samples:
                break
            num_running[engine] += admission.n
            shares[engine].append(admission.waiting.popleft())
        return list(shares.items())

    def _send(self, admission: Admission, engine: PooledEngine, rows: list[int]) -> None:
        if not rows:
            return
        admission.at.update(dict.fromkeys(rows, engine))
        [remote_rows] = admission.prompts.partition([np.array(rows)])
        engine.answers |= engine.group.start_in_background(
            ServedEngineRole.admit,
            admission.number,
            remote_rows,
            admission.n,
            admission.sampling,
            admission.step,
            self._version,
            admission.first_sample,
        )

    def pump(self, timeout_s: float = 0.0) -> None:
        """Take what engines have finished, and give them what waits. A lost engine is replaced.

        Raises:
            WorkerError: too many engines were lost.
        """
        if self._is_pumping:  # what it calls waits, too
            return
        self._is_pumping = True
        try:
            ready = dict(polled([engine.streams for engine in self._members.present], timeout_s=timeout_s))
            for engine in list(self._members.present):
                items = ready.get(engine.streams, [])
                if not items and not engine.answers:  # most of many engines
                    continue
                try:
                    engine.answers = still_pending(engine.answers, stage="rollout") if engine.answers else {}
                    pairs = engine.streams.pairs(items) if items else []
                except WorkerError as error:
                    self._members.lose(engine, error)
                    self._requeue_lost()
                    continue
                for facts, block in pairs:
                    self._take(engine, facts, block)
            self._assign()
        finally:
            self._is_pumping = False

    def _requeue_lost(self) -> None:
        """Let the prompts of engines that have ended wait again."""
        for admission in self._admissions.values():
            rows = sorted(row for row, engine in admission.at.items() if engine not in self._members.present)
            for row in reversed(rows):
                del admission.at[row]
                admission.waiting.appendleft(row)

    def _take(self, engine: PooledEngine, facts: Facts, block: BlockRef) -> None:
        admission = self._admissions[int(facts["admission"][0])]
        rows = admission.rows_of(facts["group_id"])
        for row in rows:
            del admission.at[row]
        if admission.is_complete:
            del self._admissions[admission.number]
        self._limits[engine].learn(
            len(rows) * admission.n, is_under_pressure=bool(facts["is_under_pressure"][0]), step=admission.n
        )
        own = {name: fact for name, fact in facts.items() if name not in _OF_BLOCK}
        admission.arrived(own | {"node": np.full(len(facts["writer"]), engine.node)}, block)

    def take_events(self) -> dict[str, list[Event]]:
        """Return what each engine has taken between two syncs, since the last call, and before which of its steps."""
        found, self._events = self._events, {}
        return found

    def follow(self, events: Mapping[str, Sequence[Event]]) -> None:
        """Let each engine take prompts and weights at the same steps as in a recorded run; called before any sync.

        Raises:
            ValueError: the record has other engines.
        """
        self._members.wait_for_one()
        engines = {engine.name: engine for engine in self._members.present}
        if engines.keys() != events.keys():
            raise ValueError(
                f"the schedule to repeat has {', '.join(events)}, but this run {', '.join(engines)}. A run in which an "
                "engine was lost cannot be repeated; otherwise set cluster.placement as in the recorded run."
            )
        self._repeated = RepeatedSchedule(events)
        for name, engine in engines.items():
            wait(
                engine.group.start_in_background(ServedEngineRole.follow, list(events[name])),
                stage="build",
                timeout_s=self._trainer.timeout_s,
            )

    def wait_until(self, is_done: Callable[[], bool], admissions: Sequence[Admission]) -> None:
        """Return when the condition holds, which changes as these admissions' groups arrive.

        Raises:
            StageTimeout: it does not hold within the timeout of a stage.
            Interrupted: Ctrl-C.
        """
        timeout_s = self._trainer.timeout_s
        deadline = time.monotonic() + timeout_s
        watching: Callable[[list[str]], AbstractContextManager[None]] = driver_waits("rollout", timeout_s).watching
        while not is_done():
            if not self._members.present:  # the trainer waits, too, so it can send its weights
                self.sync()
            with watching(sorted({engine.name for each in admissions for engine in each.at.values()})):
                self.pump(POLL_S)
            if time.monotonic() >= deadline and not is_done():
                raise timed_out("rollout", timeout_s, [each.missing for each in admissions if not each.is_complete])

    def sync_after_next(self) -> bool:
        """Return False: the engines do not share the actor's processes."""
        return False

    def sync(self) -> SyncReport:
        """Send the actor's weights to the engines, as :meth:`RolloutGroup.sync` does, and to new ones, too."""
        self._is_syncing = True  # an engine takes prompts after the weights, and refuses those for older ones
        try:
            report = self._synced()
        finally:
            self._is_syncing = False
        self._assign()
        return report

    def _synced(self) -> SyncReport:
        if (workers := self._wanted_workers()) is not None:
            self._members.resize(workers // self._rollout.tensor_parallel_size)
        report: SyncReport | None = None
        while report is None:
            self._members.wait_for_one()
            if self._members.have_met or self._members.meet():
                report = self._sent()
            self._requeue_lost()
        for engine in self._members.present:
            engine.has_weights = True
        self._version = report.version
        self._num_syncs += 1
        return report

    def _sent(self) -> SyncReport | None:
        """Send the weights to the engines that are present; return None if some were lost."""
        sending = self._trainer.start(ActorRole.sync, [()] * self._trainer.world_size)
        receiving = {
            engine: engine.group.start_in_background(ServedEngineRole.receive, self._on_running)
            for engine in self._members.present
        }
        found = self._members.all_answer(
            receiving, stage="sync", result=lambda: wait(sending, stage="sync", timeout_s=self._trainer.timeout_s)
        )
        if found is None:
            return None
        of_trainer: list[SyncReport] = found[0]
        of_engines: list[SyncReport] = found[1]
        refuse_differing([*of_trainer, *of_engines])
        for engine, report in zip(receiving, of_engines[:: self._rollout.tensor_parallel_size], strict=True):
            self._events.setdefault(engine.name, []).extend(report.events)
        limits = [self._limits[engine].samples for engine in receiving]
        return replace(
            of_trainer[0],
            version=min(report.version for report in of_engines),
            seconds=max(report.seconds for report in (*of_trainer, *of_engines)),
            pause_s=max(report.pause_s for report in of_engines),
            admission_limit=min(limits) if self._assigns_by_queue else None,
        )

    def request_reports(self) -> dict[BlockRef, str]:
        """Request a report from each engine's ranks; return the pending answers with the names of the ranks."""
        reports = [engine.group.request_reports() for engine in self._members.present]
        return {ref: who for of_engine in reports for ref, who in of_engine.items()}

    def profile(self, folder: str) -> None:
        """Have the engines write traces, as :meth:`WorkerGroup.profile` does."""
        for engine in self._members.present:
            engine.group.profile(folder)

    def sleep(self) -> None:
        """Do nothing: no other process uses the engines' accelerators."""
