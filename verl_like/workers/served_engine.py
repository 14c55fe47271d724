"""An engine in separate workers: it steps as long as the run lasts, and takes prompts and weights between steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from verl_like.backends.base import EngineUsage, OnRunning, RolloutEngine, Sampling
from verl_like.backends.sinks import EngineSink
from verl_like.context import current
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.protocol import DataProto
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger, Visit, stage
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.episodes import Episodes, EpisodesFactory, FinishedSample, single_turns
from verl_like.workers.generator import check_version, record_usage
from verl_like.workers.group_blocks import OPTIONAL_COLUMNS, PROMPT_COLUMNS, GroupBlocks
from verl_like.workers.inbox import Inbox, Message
from verl_like.workers.messages import Event, SyncReport
from verl_like.workers.samples import OpenSamples, PromptSamples
from verl_like.workers.setup import WorkerSetup
from verl_like.workers.transfer import Meeting, Receiving, TransferGroup
from verl_like.workers.weight_source import Counted

WAITS = "wait/prompts"  # the stage of an engine without work


class ServedEngineRole:
    """One rank of an engine that takes prompts while others run; all ranks of the engine make the same calls.

    :meth:`serve` runs on the engine's thread. All other methods run on another one, and leave their work in the inbox.

    Args:
        episodes: creates the runner of the episodes; by default each sample is one request.
    """

    def __init__(self, setup: WorkerSetup, engine: RolloutEngine, episodes: EpisodesFactory = single_turns) -> None:
        self._setup, self._engine, self._timeout_s = setup, engine, setup.config.trainer.stage_timeout_s
        self._ranks = EngineRanks(setup)
        self._samples = OpenSamples()
        self._episodes: Episodes = episodes(engine, self._ranks, self._samples)
        self._inbox = Inbox(self._ranks, timeout_s=self._timeout_s)
        self._open: dict[int, _Admission] = {}  # by the number of the admission
        self._of_row: dict[int, _Admission] = {}
        self._transfer: TransferGroup | None = None
        self._activity = _Activity()
        self._num_steps = 0

    @dispatch(Dispatch.BROADCAST)
    def join_transfer(self, meeting: Meeting, rank: int) -> None:
        """Join the processes that exchange weights, as the receiver of this rank (of the engine's first process)."""
        self._answer(partial(self._join, meeting, rank + self._setup.rank))

    def _join(self, meeting: Meeting, rank: int) -> None:
        timeout_s = self._timeout_s
        self._transfer = TransferGroup(meeting, rank=rank, device=self._setup.device, timeout_s=timeout_s)

    @dispatch(Dispatch.BROADCAST)
    def follow(self, events: list[Event]) -> None:
        """Take prompts and weights at the same steps of the engine as a recorded run; called before any of them."""
        self._inbox.follow(events)

    @dispatch(Dispatch.BROADCAST)
    def receive(self, on_running: OnRunning) -> SyncReport:
        """Take the weights that the trainer sends.

        Args:
            on_running: REFUSE waits until all that was admitted before has finished.
        """
        report: SyncReport = self._answer(
            partial(self._receive, on_running), kind="sync", waits=on_running is OnRunning.REFUSE
        )
        return report

    def _receive(self, on_running: OnRunning) -> SyncReport:
        assert self._transfer is not None, "weights are received only after join_transfer"
        started = time.perf_counter()
        with stage("sync"):
            receiving = Receiving(self._transfer, device=self._setup.device)
            counted = Counted(receiving.weights(), has_checksum=self._setup.config.rollout.sync_checksum)
            sink = EngineSink(self._engine, on_running)
            sink.begin(receiving.version)
            sink.take(counted)
            held = sink.finish()
        seconds = time.perf_counter() - started
        return SyncReport(
            version=held,
            num_bytes=counted.num_bytes,
            seconds=seconds,
            pause_s=seconds,
            events=self._inbox.take_events(),
            checksum=counted.checksum,
        )

    @dispatch(Dispatch.BROADCAST)
    def admit(
        self, number: int, rows: RemoteRows, n: int, sampling: Sampling, step: int, version: int, first_sample: int
    ) -> None:
        """Start ``n`` samples of each of these prompts.

        Args:
            number: of the admission, a fact of its blocks; prompts that engines share have the same.
            step, first_sample: identify the samples' seeds.
            version: version of the weights that the engine must hold.
        """
        columns = [*PROMPT_COLUMNS, *sorted(OPTIONAL_COLUMNS & rows.columns)]
        prompts = rows.fetch(columns, timeout_s=self._timeout_s)
        self._inbox.put(
            Message(
                partial(
                    self._begin,
                    number,
                    prompts,
                    n=n,
                    sampling=sampling,
                    step=step,
                    version=version,
                    first_sample=first_sample,
                ),
                kind="admit",
                number=number,
                rows=tuple(rows.rows.tolist()),
            )
        )

    def _begin(self, number: int, prompts: DataProto, *, version: int, **of_samples: Any) -> None:
        check_version(self._engine, version, 0)
        samples = PromptSamples(
            prompts=prompts, seed=self._setup.config.trainer.seed, first_row=self._samples.next_row, **of_samples
        )
        self._samples.add(samples)
        admission = _Admission(number, samples, writer=self._setup.rank, block_kib=self._setup.config.rollout.block_kib)
        self._open[admission.id] = admission
        self._of_row.update(dict.fromkeys(samples.rows, admission))
        self._episodes.begin(samples.rows)

    def _answer(self, work: Callable[[], Any], *, kind: str = "", waits: bool = False) -> Any:
        """Leave work in the inbox and return its result; the engine must be serving."""
        message = Message(work, kind, waits=waits)
        self._inbox.put(message)
        return message.answer.result(self._timeout_s)

    @dispatch(Dispatch.STREAM)
    def serve(self, rows: RemoteRows) -> Iterator[Facts | DataProto]:
        """Yield the facts of some finished groups, then their block, until Ctrl-C or the end of the process.

        Args:
            rows: none; prompts come by :meth:`admit`.
        """
        self._engine.usage = EngineUsage()
        is_idle = True
        try:
            while not self._ranks.are_interrupted():
                current(Heartbeat).tick()
                self._activity.is_now(WAITS if is_idle else "rollout")
                self._inbox.work_through(step=self._num_steps, is_idle=is_idle)
                is_idle = not self._episodes.has_unfinished()
                if not is_idle:
                    self._num_steps += 1
                    for sample in self._episodes.step():
                        self._of_row[sample.row].add(sample)
                yield from self._blocks()
        finally:
            self._episodes.abort()
            self._activity.end()

    def _blocks(self) -> Iterator[Facts | DataProto]:
        """Yield the blocks that are due, and the rest of the admissions that have ended."""
        for admission in list(self._open.values()):
            found = admission.blocks.due() if admission.num_unfinished else admission.blocks.rest()
            for part in found if self._ranks.is_first else ():
                if isinstance(part, DataProto):
                    yield part
                    continue
                usage = self._take_usage(is_counted=admission.samples.step >= 0)  # negative in validation
                num_rows = len(part["sample"])
                yield part | {
                    "admission": np.full(num_rows, admission.number),
                    "is_under_pressure": np.full(num_rows, usage.is_under_pressure),
                }
            if not admission.num_unfinished:
                self._end(admission)

    def _take_usage(self, *, is_counted: bool) -> EngineUsage:
        """Return the engine's usage since the last call, and add it to the metrics."""
        usage, self._engine.usage = self._engine.usage, EngineUsage()
        if is_counted:
            record_usage(usage)
        return usage

    def _end(self, admission: _Admission) -> None:
        del self._open[admission.id]
        for row in admission.samples.rows:
            del self._of_row[row]
        self._samples.remove(admission.samples)


class _Admission:
    """Prompts that were admitted together, until all their samples have finished."""

    def __init__(self, number: int, samples: PromptSamples, *, writer: int, block_kib: float) -> None:
        self.number, self.samples, self.id = number, samples, samples.first_row
        self.num_unfinished = len(samples.rows) * samples.n
        self.blocks = GroupBlocks(
            samples.prompts,
            n=samples.n,
            num_prompts=len(samples.rows),
            writer=writer,
            block_kib=block_kib,
            first_row=samples.first_row,
            keeps_versions=True,
        )

    def add(self, sample: FinishedSample) -> None:
        self.num_unfinished -= 1
        self.blocks.add(sample)


class _Activity:
    """The stage of an engine's thread between two changes, so that not every step of the engine is a visit."""

    def __init__(self) -> None:
        self._visit: Visit | None = None

    def is_now(self, name: str) -> None:
        if self._visit is None or self._visit.stage != name:
            self.end()
            self._visit = current(Ledger).enter(name)

    def end(self) -> None:
        if self._visit is not None:
            current(Ledger).leave(self._visit)
            self._visit = None
