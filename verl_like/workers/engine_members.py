"""The engines that are present: they meet the trainer, may be lost, and are replaced while the run continues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from verl_like.controller.errors import StageTimeout, WorkerError, WorkerRefusal
from verl_like.controller.remote_batch import BlockRef
from verl_like.controller.streams import OpenStreams
from verl_like.controller.wait import POLL_S, driver_waits, timed_out, wait
from verl_like.controller.worker_group import WorkerGroup
from verl_like.workers.sender import SenderRole
from verl_like.workers.served_engine import ServedEngineRole
from verl_like.workers.transfer import Meeting

log = logging.getLogger(__name__)


class EngineHosts(Protocol):
    """Starts and ends the workers of engines."""

    @property
    def num_free(self) -> int:
        """How many more engines the cluster has free resources for."""

    def start(self) -> WorkerGroup:
        """Start the workers of another engine, and begin to build it."""

    def end(self, group: WorkerGroup) -> None:
        """End the workers of an engine, whatever they do."""


@dataclass(eq=False, slots=True)
class PooledEngine:
    """One engine: its ranks, what it sends, and the answers to calls that are under way.

    Args:
        node: its node, numbered like the nodes of the training ranks; -1 if none of these is on it.
    """

    group: WorkerGroup
    streams: OpenStreams
    node: int
    answers: dict[BlockRef, str] = field(default_factory=dict)
    has_weights: bool = False  # it takes prompts only then

    @property
    def name(self) -> str:
        return self.group.name


class EngineMembers:
    """The engines of a pool.

    Args:
        groups: the workers of each engine, which are built.
        node: the node of every engine, as in :class:`PooledEngine`.
        trainer: the workers that send the weights.
        ranks_per_engine: processes of each engine.
        max_lost: times that an engine may be lost and replaced; one more ends the run.
        start_timeout_s: deadline of a new engine.
    """

    def __init__(
        self,
        hosts: EngineHosts,
        groups: Sequence[WorkerGroup],
        *,
        node: int,
        trainer: WorkerGroup,
        ranks_per_engine: int,
        max_lost: int,
        start_timeout_s: float,
    ) -> None:
        self._hosts, self._node, self._trainer, self._size = hosts, node, trainer, ranks_per_engine
        self._max_lost, self._start_timeout_s = max_lost, start_timeout_s
        self.present: list[PooledEngine] = []
        self._starting: list[WorkerGroup] = list(groups)
        self._num_wanted = len(groups)
        self._met: list[PooledEngine] = []  # the engines of the last meeting
        self.num_lost = self._num_meetings = 0

    @property
    def have_met(self) -> bool:
        """Whether the trainer and the present engines are connected."""
        return self._met == self.present

    def lose(self, engine: PooledEngine, error: Exception) -> None:
        """End an engine that failed, and start another one.

        Raises:
            WorkerError: the error, if too many engines were lost or another one would fail the same way.
        """
        if engine in self.present:  # several calls may report its end
            self._end(engine)
            self._replace([engine.group], error)

    def _end(self, engine: PooledEngine) -> None:
        self.present.remove(engine)
        self._hosts.end(engine.group)

    def _replace(self, groups: Sequence[WorkerGroup], error: Exception) -> None:
        """Start other engines for these, which have ended for one reason; raise it if it ends the run."""
        self.num_lost += 1
        if isinstance(error, WorkerRefusal) or self.num_lost > self._max_lost:
            raise error
        log.warning("%s", error)
        for group in groups:
            log.warning(
                "%s is replaced (%d of at most %d); its prompts are generated again, and training continues",
                group.name,
                self.num_lost,
                self._max_lost,
            )
        self._start_missing()

    def _start_missing(self) -> None:
        """Start the engines that are missing, as far as the cluster has capacity; the rest when it has."""
        missing = self._num_wanted - len(self.present) - len(self._starting)
        for _ in range(min(missing, self._hosts.num_free) if missing > 0 else 0):
            self._starting.append(self._hosts.start())
            log.info("%s is started", self._starting[-1].name)

    def resize(self, num_engines: int) -> None:
        """End engines so that at most this many exist; missing ones are started by :meth:`wait_for_one`."""
        self._num_wanted = num_engines
        while self._starting and len(self.present) + len(self._starting) > num_engines:
            self._hosts.end(self._starting.pop())
        for engine in self.present[num_engines:]:
            log.info("%s is ended; its prompts are generated by the others", engine.name)
            self.present.remove(engine)
            self._hosts.end(engine.group)

    def _admit_built(self) -> None:
        """Let the engines that have been built take part."""
        for group in list(self._starting):
            try:
                if not group.is_built():
                    continue
                group.wait_built(timeout_s=self._start_timeout_s)
            except WorkerError as error:
                self._starting.remove(group)
                self._hosts.end(group)
                self._replace([group], error)
                continue
            self._starting.remove(group)
            self.present.append(PooledEngine(group, group.open_streams(ServedEngineRole.serve), self._node))

    def wait_for_one(self) -> None:
        """Start missing engines, let those that have been built take part, and return when there is at least one.

        Raises:
            StageTimeout: none was built in time.
        """
        deadline = time.monotonic() + self._start_timeout_s
        watching = driver_waits("build", self._start_timeout_s).watching
        while True:
            self._start_missing()
            self._admit_built()
            if self.present:
                return
            if time.monotonic() >= deadline:
                names = [group.name for group in self._starting] or ["free resources for an engine"]
                raise timed_out("build", self._start_timeout_s, names)
            with watching(group.name for group in self._starting):
                time.sleep(POLL_S)

    def meet(self) -> bool:
        """Connect the trainer with the present engines; return whether none was lost.

        Raises:
            WorkerError: the trainer failed, or too many engines were lost.
        """
        self._num_meetings += 1
        [(host, port)] = self._trainer.call(SenderRole.address)
        size = 1 + self._size * len(self.present)
        meeting = Meeting(host=host, port=port, number=self._num_meetings, size=size)
        joining = self._trainer.start(SenderRole.join, [(meeting,)] * self._trainer.world_size)
        found = self.all_answer(
            {
                engine: engine.group.start_in_background(
                    ServedEngineRole.join_transfer, meeting, 1 + self._size * number
                )
                for number, engine in enumerate(self.present)
            },
            stage="build",
            result=lambda: wait(joining, stage="build", timeout_s=self._trainer.timeout_s),
        )
        self._met = list(self.present) if found is not None else []
        return found is not None

    def all_answer(
        self, calls: dict[PooledEngine, dict[BlockRef, str]], *, stage: str, result: Callable[[], list[Any]]
    ) -> tuple[list[Any], list[Any]] | None:
        """Wait for calls to engines and for the trainer; return the trainer's answers and theirs.

        An engine that fails is ended, so that the others and the trainer, which may wait for it, fail, too. Then the
        result is None, and the calls must be made again with those that are present.

        Raises:
            WorkerError: the trainer failed, but no engine did; or a reason that ends the run.
        """
        found, answers = list[Any](), list[Any]()
        failed: list[Exception] = []
        ended: list[WorkerGroup] = []
        for engine, refs in calls.items():
            try:
                answers += wait(refs, stage=stage, timeout_s=self._trainer.timeout_s)
            except WorkerRefusal:
                raise
            except (WorkerError, StageTimeout) as error:
                failed.append(error)
                if engine in self.present:
                    self._end(engine)
                    ended.append(engine.group)
        try:
            found = result()
        except WorkerError:
            if not failed:
                raise
        if ended:  # one that died is the cause, and counts; the others failed because they waited for it
            self._replace(ended, min(failed, key=lambda error: " died" not in str(error)))
        return None if failed else (found, answers)
