"""The process on each node that passes the driver's calls on to the node's ranks, and answers for all of them.

Calls of Ray, and references to blocks, were nearly all that a step cost the driver, which made ten calls for each rank;
so that of several nodes knows nodes and blocks of nodes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import numpy as np
import ray

from verl_like.controller import ray_calls, signals
from verl_like.controller.blocks import Block, blocks_of
from verl_like.controller.failures import RanksFailed, failures
from verl_like.controller.rank_calls import RankCall, Ranks
from verl_like.controller.remote_batch import BlockRef, RemoteRows, joined_facts
from verl_like.controller.store import STORE, Reply
from verl_like.controller.streams import Pair, Pairing, items
from verl_like.controller.wait import POLL_S, timed_out
from verl_like.protocol import DataProto
from verl_like.telemetry import stacks
from verl_like.telemetry.heartbeat import HEARTBEAT
from verl_like.telemetry.ledger import LEDGER
from verl_like.telemetry.process_log import PROCESS_LOG
from verl_like.telemetry.process_usage import ProcessReport, Reporter


class HubProcess:
    """What a process is that passes calls on: watched, and part of a run's books."""

    def __init__(self, environment: dict[str, str]) -> None:
        stacks.listen()
        signals.leave_to_driver()
        LEDGER.rest("wait/driver")
        os.environ.update(environment)
        HEARTBEAT.start_from_environment(ray_calls.own_node)
        PROCESS_LOG.keep_from_environment()
        self.reporter = Reporter()

    def ready(self) -> None:
        """Return once the process has started."""


class Relay(HubProcess):
    """Calls ranks for the driver.

    It is none of them, because Ray's library ends a process that streams blocks to itself (2.60).

    Raises (all methods):
        RanksFailed: some rank failed.
        StageTimeout: the deadline passed; it names who was waited for.
    """

    def __init__(self, environment: dict[str, str], ranks: Ranks) -> None:
        super().__init__(environment)
        self._ranks = ranks
        self._streams: dict[int, Iterator[Pair]] = {}  # by the first rank of their calls

    def answers(self, calls: Sequence[RankCall], stage: str, timeout_s: float) -> Reply:
        """Make the calls; a reply of their answers, in order."""
        begun, _ = self._ranks.begun(calls)
        return _together(arrived(begun, stage=stage, timeout_s=timeout_s))

    def reports(self, calls: Sequence[RankCall], stage: str, timeout_s: float) -> list[ProcessReport]:
        """Make calls for reports; these and its own."""
        found = [self.reporter.take()]
        for reports in self.answers(calls, stage, timeout_s).value:
            found += reports
        return found

    def map(
        self, calls: Sequence[RankCall], rows: RemoteRows, cuts: Sequence[Sequence[Block]], stage: str, timeout_s: float
    ) -> Reply:
        """Make calls that map; a reply of their answers, in order, and of their tables, cut into blocks.

        Args:
            cuts: the blocks of each node, which is one here.
        """
        [blocks] = cuts
        begun, refs = self._ranks.begun(calls, rows)
        answer = _together(arrived(begun, stage=stage, timeout_s=timeout_s))
        made = [ray_calls.put(block) for block in blocks_of(_table(refs), blocks)] if blocks else []
        return Reply((answer.value, made), answer.fetched_bytes + STORE.take())

    def first_pairs(
        self, calls: Sequence[RankCall], rows: RemoteRows, min_groups: int, stage: str, timeout_s: float
    ) -> list[Pair]:
        """Make calls that stream; :meth:`more_pairs` has what comes later.

        No stream itself, since Ray loses references within a stream's items (2.60), and a block that the driver owns
        costs it three times as much.

        Args:
            min_groups: of rows, in a block that is not the last.
        """
        streams = self._ranks.begun_streams(calls, rows)
        # What ends a run early, Ctrl-C or a verdict, reaches the driver and the ranks themselves.
        found = items(streams, stage=stage, timeout_s=timeout_s, waiting=_unsaid)
        joined = Pairing(streams, lambda refs: arrived(refs, stage=stage, timeout_s=timeout_s))
        self._streams[calls[0].rank] = _merged((joined.pairs(ready) for ready in found), min_groups)
        return self.more_pairs(calls[0].rank)

    def more_pairs(self, first_rank: int) -> list[Pair]:
        """Wait for more blocks of what the ranks stream; none after the last.

        Args:
            first_rank: of the calls.
        """
        return list(islice(self._streams[first_rank], 1))


def arrived(refs: Mapping[BlockRef, str], *, stage: str, timeout_s: float) -> list[Any]:
    """What the references stand for, in order; raises as :class:`Relay` does."""
    deadline = time.monotonic() + timeout_s
    found: dict[BlockRef, Any] = {}
    pending = list(refs)
    while pending:
        try:
            values, pending = ray_calls.arrived(pending, timeout_s=POLL_S)
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            raise RanksFailed(failures({ref: refs[ref] for ref in pending})) from None
        found.update(values)
        if pending and time.monotonic() >= deadline:
            raise timed_out(stage, timeout_s, [refs[ref] for ref in pending])
    return [found[ref] for ref in refs]


def _unsaid(names: Iterable[str]) -> AbstractContextManager[None]:
    """Nobody is told whom this process waits for."""
    return nullcontext()


def _together(answers: list[Any]) -> Reply:
    replies = [each if isinstance(each, Reply) else Reply(each, 0) for each in answers]
    return Reply([reply.value for reply in replies], sum(reply.fetched_bytes for reply in replies))


def _table(refs: Sequence[BlockRef]) -> DataProto:
    """One table of blocks that lie on this node."""
    table = DataProto.concat(ray_calls.fetched(refs, timeout_s=ray_calls.PUT_S))
    STORE.add_fetched(table.nbytes)
    return table


def _merged(moments: Iterable[Sequence[Pair]], min_groups: int) -> Iterator[Pair]:
    """What several ranks have made as one block, as soon as that is large enough."""
    waiting: list[Pair] = []
    num_groups = 0
    for pairs in moments:
        waiting += pairs
        num_groups += sum(len(np.unique(facts["group_id"])) for facts, _ in pairs)
        if num_groups >= min_groups:
            yield _one(waiting)
            waiting, num_groups = [], 0
    if waiting:
        yield _one(waiting)


def _one(pairs: Sequence[Pair]) -> Pair:
    if len(pairs) == 1:
        return pairs[0]
    return joined_facts([facts for facts, _ in pairs]), ray_calls.put(_table([block for _, block in pairs]))


# Not a decorator: Ray would pickle the class by value; a plain class travels by reference. Several at once: reports are
# asked for while a stage runs.
RelayProcess = ray.remote(num_cpus=0, max_concurrency=4, enable_task_events=False)(Relay)
