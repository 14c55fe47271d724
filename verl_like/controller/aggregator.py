"""A process of the tree that calls ranks on behalf of its caller and answers for all ranks below it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import ray

from verl_like.context import current
from verl_like.controller import ray_calls, signals
from verl_like.controller.blocks import MAX_STREAM_BLOCKS, Block, blocks_of
from verl_like.controller.failures import RanksFailed
from verl_like.controller.remote_batch import BlockRef, RemoteRows, joined_facts
from verl_like.controller.store import Reply, StoreCounters
from verl_like.controller.streams import Pair
from verl_like.controller.transport import RankCall, Transport
from verl_like.controller.tree import REPORT_S
from verl_like.controller.wait import Waits, polls, unwatched
from verl_like.protocol import DataProto
from verl_like.telemetry import stacks
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger
from verl_like.telemetry.process_log import ProcessLog
from verl_like.telemetry.process_usage import ProcessReport, Reporter


class Aggregator:
    """Calls ranks: those of one node, or those of several nodes through other aggregators.

    It is not one of the ranks itself, because Ray ends a process that streams blocks to itself (2.60).

    Args:
        children: the transport that reaches the ranks.
        is_of_node: whether the ranks are those of one node. Their blocks are joined; otherwise references are passed
            on.

    Raises (all methods):
        RanksFailed: a rank failed.
        StageTimeout: the deadline passed; the message names the ranks still waited for.
    """

    def __init__(self, environment: dict[str, str], children: Transport, *, is_of_node: bool) -> None:
        stacks.listen()
        signals.leave_to_driver()
        current(Ledger).rest("wait/driver")
        os.environ.update(environment)
        current(Heartbeat).start_from_environment(ray_calls.own_node)
        current(ProcessLog).keep_from_environment()
        self._reporter = Reporter()
        self._children, self._is_of_node = children, is_of_node
        self._streams: dict[int, Iterator[list[Pair]]] = {}  # keyed by the first rank of the calls

    def ready(self) -> None:
        """Return once the process has started."""

    def answers(
        self,
        calls: Sequence[RankCall],
        rows: RemoteRows | None,
        cuts: Sequence[Sequence[Block]] | None,
        stage: str,
        timeout_s: float,
    ) -> Reply:
        """Make calls and return a reply with their answers and blocks, as :meth:`Transport.answers` does.

        Args:
            cuts: the blocks of each node; None for calls that return no table.
        """
        is_joined = self._is_of_node and cuts is not None
        of_children = [[slice(0, call.num_rows)] if any(cuts or ()) else [] for call in calls] if is_joined else cuts
        children = self._children.calls(
            calls, None if rows is None else rows.select, of_children, stage=stage, timeout_s=timeout_s
        )
        made = ray_calls.begun(children)
        timeout_s += self._children.late_s
        replies = _arrived(ray_calls.answers_of(children, made), stage=stage, timeout_s=timeout_s)
        answers, refs = self._children.answers(made, [reply.value for reply in replies])
        if is_joined and refs:
            refs = [ray_calls.put(block) for blocks in cuts or () for block in blocks_of(_table(refs), blocks)]
        return Reply((answers, refs), sum(reply.fetched_bytes for reply in replies) + current(StoreCounters).take())

    def reports(self, calls: Sequence[RankCall]) -> list[ProcessReport]:
        """Make calls for reports; return their reports, preceded by this process's own."""
        children = self._children.report_calls(calls)
        asked = ray_calls.answers_of(children, ray_calls.begun(children))
        replies = _arrived(asked, stage="report", timeout_s=REPORT_S + self._children.late_s)
        return [self._reporter.take(), *(report for reply in replies for report in reply.value)]

    def first_pairs(
        self, calls: Sequence[RankCall], rows: RemoteRows, num_groups: int, stage: str, timeout_s: float
    ) -> list[Pair]:
        """Make streaming calls and return their first pairs; :meth:`more_pairs` returns the later ones.

        This is not a stream itself: Ray loses references inside a stream's items (2.60), and a block owned by the
        driver costs the driver three times as much.

        Args:
            num_groups: number of groups that the ranks stream in total.
        """
        children = self._children.stream_calls(
            calls, rows.select, num_groups=num_groups, stage=stage, timeout_s=timeout_s
        )
        waits = _waits(stage, timeout_s + self._children.late_s)
        found = self._children.pairs(children, ray_calls.begun(children), waits)
        if self._is_of_node:
            found = _joined(found, min_groups=max(1, num_groups // MAX_STREAM_BLOCKS))
        self._streams[calls[0].rank] = filter(None, found)
        return self.more_pairs(calls[0].rank)

    def more_pairs(self, first_rank: int) -> list[Pair]:
        """Wait for more blocks from the ranks' streams; return an empty list after the last one.

        Args:
            first_rank: first rank of the calls.
        """
        return next(self._streams[first_rank], [])


def _arrived(refs: Mapping[BlockRef, str], *, stage: str, timeout_s: float) -> list[Reply]:
    """Return all replies in the order of ``refs``; raise as :class:`Aggregator` does."""
    found: dict[BlockRef, Any] = {}
    for values, _ in polls(refs, stage=stage, timeout_s=timeout_s, failed=RanksFailed):
        found.update(values)
    return [found[ref] if isinstance(found[ref], Reply) else Reply(found[ref], 0) for ref in refs]


def _waits(stage: str, timeout_s: float) -> Waits:
    """Return the waits of a stage that begins now; Ctrl-C and verdicts end the driver and the ranks, not this wait."""
    began_at = time.monotonic()

    def every(refs: Mapping[BlockRef, str]) -> list[Any]:
        return [reply.value for reply in _arrived(refs, stage=stage, timeout_s=timeout_s)]

    def first(refs: Mapping[BlockRef, str]) -> list[tuple[BlockRef, Any]]:
        found = polls(refs, stage=stage, timeout_s=timeout_s, failed=RanksFailed, began_at=began_at, at_least=1)
        return next(values for values, _ in found if values)

    return Waits(stage, timeout_s, every, first, unwatched)


def _table(refs: Sequence[BlockRef]) -> DataProto:
    """Fetch blocks of this node and join them into one table."""
    table = DataProto.concat(ray_calls.fetched(refs, timeout_s=ray_calls.PUT_S))
    current(StoreCounters).add_fetched(table.nbytes)
    return table


def _joined(moments: Iterable[Sequence[Pair]], *, min_groups: int) -> Iterator[list[Pair]]:
    """Join the blocks of several ranks; yield one block as soon as it has ``min_groups`` groups."""
    waiting: list[Pair] = []
    num_groups = 0
    for pairs in moments:
        waiting += pairs
        num_groups += sum(len(np.unique(facts["group_id"])) for facts, _ in pairs)
        if num_groups >= min_groups:
            yield [_one(waiting)]
            waiting, num_groups = [], 0
    if waiting:
        yield [_one(waiting)]


def _one(pairs: Sequence[Pair]) -> Pair:
    if len(pairs) == 1:
        return pairs[0]
    return joined_facts([facts for facts, _ in pairs]), ray_calls.put(_table([block for _, block in pairs]))


# Not a decorator: Ray would pickle the class by value; a plain class travels by reference. Several threads, because
# reports are requested while a stage runs.
AggregatorProcess = ray.remote(num_cpus=0, max_concurrency=4, enable_task_events=False)(Aggregator)
