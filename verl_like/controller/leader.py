"""The process that speaks to the relays of several nodes, where there are too many for the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from verl_like.controller import ray_calls
from verl_like.controller.blocks import Block
from verl_like.controller.failures import RanksFailed, failures
from verl_like.controller.hubs import LATE_S, Hub, begun_on, shares, streamed
from verl_like.controller.rank_calls import RankCall
from verl_like.controller.ray_calls import Call
from verl_like.controller.relay import HubProcess, arrived
from verl_like.controller.remote_batch import BlockRef, RemoteRows
from verl_like.controller.store import Reply
from verl_like.controller.streams import Pair
from verl_like.controller.wait import POLL_S, timed_out
from verl_like.telemetry.process_usage import ProcessReport


class Leader(HubProcess):
    """Has relays make calls, with the methods of :class:`verl_like.controller.relay.Relay`, and its errors.

    Args:
        relays: of all nodes that it may be asked for.
    """

    def __init__(self, environment: dict[str, str], relays: Sequence[Hub]) -> None:
        super().__init__(environment)
        self._relays = relays
        self._streams: dict[int, Iterator[list[Pair]]] = {}  # by the first rank of their calls

    def answers(self, calls: Sequence[RankCall], stage: str, timeout_s: float) -> Reply:
        given = shares(self._relays, calls)
        replies = self._asked(
            given, [Call(hub.handle.answers, (s, stage, timeout_s)) for hub, s in given], stage, timeout_s
        )
        return Reply([value for reply in replies for value in reply.value], sum(r.fetched_bytes for r in replies))

    def reports(self, calls: Sequence[RankCall], stage: str, timeout_s: float) -> list[ProcessReport]:
        given = shares(self._relays, calls)
        of_nodes = self._asked(
            given, [Call(hub.handle.reports, (s, stage, timeout_s)) for hub, s in given], stage, timeout_s
        )
        return [self.reporter.take(), *(report for reports in of_nodes for report in reports)]

    def map(
        self, calls: Sequence[RankCall], rows: RemoteRows, cuts: Sequence[Sequence[Block]], stage: str, timeout_s: float
    ) -> Reply:
        given = shares(self._relays, calls)
        of_nodes = zip(given, _cut_by_hub(rows, given), cuts, strict=True)
        begun = [
            Call(hub.handle.map, (share, own, [blocks], stage, timeout_s)) for (hub, share), own, blocks in of_nodes
        ]
        replies = self._asked(given, begun, stage, timeout_s)
        answers = [answer for reply in replies for answer in reply.value[0]]
        refs = [ref for reply in replies for ref in reply.value[1]]
        return Reply((answers, refs), sum(reply.fetched_bytes for reply in replies))

    def first_pairs(
        self, calls: Sequence[RankCall], rows: RemoteRows, min_groups: int, stage: str, timeout_s: float
    ) -> list[Pair]:
        given = shares(self._relays, calls)
        begun = [
            Call(hub.handle.first_pairs, (share, own, max(1, min_groups // len(given)), stage, timeout_s))
            for (hub, share), own in zip(given, _cut_by_hub(rows, given), strict=True)
        ]
        hubs = [hub for hub, _ in given]
        deadline = time.monotonic() + timeout_s + LATE_S

        def look(asked: dict[BlockRef, str]) -> list[tuple[BlockRef, list[Pair]]]:
            while time.monotonic() < deadline:
                try:
                    found, _ = ray_calls.arrived(list(asked), timeout_s=POLL_S, at_least=1)
                except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
                    raise RanksFailed(failures(asked)) from None
                if found:
                    return found
            raise timed_out(stage, timeout_s, asked.values())

        self._streams[calls[0].rank] = streamed(hubs, begun_on(hubs, begun), look)
        return self.more_pairs(calls[0].rank)

    def more_pairs(self, first_rank: int) -> list[Pair]:
        return next((pairs for pairs in self._streams[first_rank] if pairs), [])

    def _asked(
        self, given: Sequence[tuple[Hub, list[RankCall]]], begun: Sequence[Call], stage: str, timeout_s: float
    ) -> list[Any]:
        return arrived(begun_on([hub for hub, _ in given], begun), stage=stage, timeout_s=timeout_s + LATE_S)


def _cut_by_hub(rows: RemoteRows, given: Sequence[tuple[Hub, list[RankCall]]]) -> Iterator[RemoteRows]:
    """The rows of each hub's ranks."""
    first = 0
    for _, share in given:
        end = first + sum(call.num_rows for call in share)
        yield rows.select(slice(first, end))
        first = end


LeaderProcess = ray.remote(num_cpus=0, max_concurrency=4, enable_task_events=False)(Leader)
