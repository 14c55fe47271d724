"""How the driver reaches the ranks of a group: each by itself, or those of nodes through hubs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from verl_like.controller.blocks import MAX_STREAM_BLOCKS, Block, cut
from verl_like.controller.errors import INTERRUPT
from verl_like.controller.hubs import LATE_S, Hub, begun_on, shares, streamed
from verl_like.controller.rank_calls import RankCall, Ranks
from verl_like.controller.ray_calls import Call
from verl_like.controller.remote_batch import BlockRef, RemoteBatch, RemoteRows
from verl_like.controller.streams import Pair, Pairing, items
from verl_like.controller.verdicts import VERDICTS
from verl_like.controller.wait import named, soonest, wait
from verl_like.protocol import Array
from verl_like.telemetry.heartbeat import HEARTBEAT

REPORT_S = 20.0  # for a report, which takes a moment; its call holds one of a hub's few threads


@dataclass(frozen=True, slots=True)
class Dealt:
    """A batch as it is dealt to the ranks: the row indices of each."""

    batch: RemoteBatch
    partition: Sequence[Array]

    def of(self, ranks: Iterable[int]) -> Array:
        """Row indices, one rank's behind the other's."""
        return np.concatenate([self.partition[rank] for rank in ranks])

    def rows(self, indices: Array) -> RemoteRows:
        """What is sent of these rows."""
        [rows] = self.batch.partition([indices])
        return rows


@dataclass(frozen=True, slots=True)
class Mapped:
    """What ranks answered, in their order, and their tables: ``refs[i]`` is the block of the rows ``parts[i]``."""

    answers: list[Any]
    parts: list[Array]
    refs: list[BlockRef]


class Direct:
    """Calls each rank.

    Its methods take a call of every rank, in order (``answers`` of some), and the stage for messages.
    """

    def __init__(self, ranks: Ranks, *, timeout_s: float) -> None:
        self._ranks, self._timeout_s = ranks, timeout_s

    def answers(self, calls: Sequence[RankCall], *, stage: str, interruptible: bool) -> list[Any]:
        """What the ranks answer, in the order of the calls."""
        answers, _ = self._ranks.begun(calls)
        return wait(answers, stage=stage, timeout_s=self._timeout_s, interruptible=interruptible)

    def mapped(
        self,
        calls: Sequence[RankCall],
        dealt: Dealt,
        *,
        adds: frozenset[str],
        blocks: Sequence[Block] | None,
        stage: str,
        interruptible: bool,
    ) -> Mapped:
        """Have the ranks' rows mapped; arguments as of :meth:`WorkerGroup.map_rows`."""
        rows = dealt.partition
        cuts = [(blocks or cut(dealt.batch.facts, rows[call.rank], adds)) if adds else [] for call in calls]
        given = [call._replace(blocks=of_rank) for call, of_rank in zip(calls, cuts, strict=True)]
        answers, refs = self._ranks.begun(given, dealt.rows(np.concatenate(rows)))
        arrived = wait(answers, stage=stage, timeout_s=self._timeout_s, interruptible=interruptible)
        parts = [rows[call.rank][place] for call, of_rank in zip(calls, cuts, strict=True) for place in of_rank]
        return Mapped(arrived, parts, refs)

    def pairs(self, calls: Sequence[RankCall], dealt: Dealt, *, stage: str) -> Iterator[Pair]:
        """Facts and blocks that the ranks stream, as they appear."""
        streams = self._ranks.begun_streams(calls, dealt.rows(np.concatenate(dealt.partition)))
        joined = Pairing(streams, partial(wait, stage=stage, timeout_s=self._timeout_s))
        waiting = partial(_waiting, stage)
        for ready in items(streams, stage=stage, timeout_s=self._timeout_s, waiting=waiting):
            yield from joined.pairs(ready)

    def reports(self, calls: Sequence[RankCall]) -> dict[BlockRef, str]:
        """Calls for reports under way: lists of reports, each with the names of whom they are about."""
        return self._ranks.begun(calls)[0]


class ByHub:
    """Calls hubs, which have all ranks between them, in their order; with the methods of :class:`Direct`."""

    def __init__(self, hubs: Sequence[Hub], *, timeout_s: float) -> None:
        self._hubs, self._timeout_s = hubs, timeout_s

    def answers(self, calls: Sequence[RankCall], *, stage: str, interruptible: bool) -> list[Any]:
        given = shares(self._hubs, calls)
        begun = [Call(hub.handle.answers, (share, stage, self._timeout_s)) for hub, share in given]
        return [answer for answers in self._arrived(begun, stage, interruptible) for answer in answers]

    def mapped(
        self,
        calls: Sequence[RankCall],
        dealt: Dealt,
        *,
        adds: frozenset[str],
        blocks: Sequence[Block] | None,
        stage: str,
        interruptible: bool,
    ) -> Mapped:
        assert blocks is None, "only a group of one is told how to cut"
        given = [call._replace(blocks=[slice(0, call.num_rows)] if adds else []) for call in calls]
        begun, parts = [], []
        for hub, share in shares(self._hubs, given):
            of_nodes = [dealt.of(node) for node in hub.nodes]
            cuts = [cut(dealt.batch.facts, rows, adds) if adds else [] for rows in of_nodes]
            args = share, dealt.rows(np.concatenate(of_nodes)), cuts, stage, self._timeout_s
            begun.append(Call(hub.handle.map, args))
            parts += [rows[place] for rows, of_node in zip(of_nodes, cuts, strict=True) for place in of_node]
        of_hubs = self._arrived(begun, stage, interruptible)
        answers = [answer for of_hub, _ in of_hubs for answer in of_hub]
        return Mapped(answers, parts, [ref for _, refs in of_hubs for ref in refs])

    def pairs(self, calls: Sequence[RankCall], dealt: Dealt, *, stage: str) -> Iterator[Pair]:
        begun = []
        for hub, share in shares(self._hubs, calls):
            # Of those that no rank begins with, a hub's ranks take as many as others.
            min_groups = max(1, len(dealt.batch) * len(hub.ranks) // (len(calls) * MAX_STREAM_BLOCKS))
            rows = dealt.rows(dealt.of(hub.ranks))
            begun.append(Call(hub.handle.first_pairs, (share, rows, min_groups, stage, self._timeout_s)))
        look = partial(soonest, stage=stage, timeout_s=self._timeout_s + 2 * LATE_S, interruptible=True)
        for pairs in streamed(self._hubs, begun_on(self._hubs, begun), look):
            yield from pairs

    def reports(self, calls: Sequence[RankCall]) -> dict[BlockRef, str]:
        given = shares(self._hubs, calls)
        ask = [Call(hub.handle.reports, (share, "report", REPORT_S)) for hub, share in given]
        return begun_on(self._hubs, ask)

    def _arrived(self, begun: Sequence[Call], stage: str, interruptible: bool) -> list[Any]:
        """What the hubs answer, in their order."""
        late_s = self._timeout_s + 2 * LATE_S
        return wait(begun_on(self._hubs, begun), stage=stage, timeout_s=late_s, interruptible=interruptible)


Reach: TypeAlias = Direct | ByHub


@contextmanager
def _waiting(stage: str, names: Iterable[str]) -> Iterator[None]:
    """A look at streams."""
    with HEARTBEAT.waiting(named(names)):
        yield
    INTERRUPT.stop_before(stage)
    VERDICTS.check()
