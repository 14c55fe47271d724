"""How the driver reaches the ranks of a group: each by itself, or those of a node through the node's relay."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from verl_like.protocol import Array
from verl_like.single_controller import ray_calls
from verl_like.single_controller.blocks import MAX_STREAM_BLOCKS, Block, cut
from verl_like.single_controller.errors import INTERRUPT
from verl_like.single_controller.rank_calls import RankCall, Ranks
from verl_like.single_controller.ray_calls import Call
from verl_like.single_controller.remote_batch import BlockRef, RemoteBatch, RemoteRows
from verl_like.single_controller.streams import Pair, Pairing, items
from verl_like.single_controller.verdicts import VERDICTS
from verl_like.single_controller.wait import named, soonest, wait
from verl_like.telemetry.beacon import BEACON

NODE_PAUSE_S = 8e-4  # per node: their blocks are large, and so much later several are there at once
RELAY_S = 5.0  # beyond a call's own deadline, which a relay keeps: it knows which of its ranks has not answered


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


class Reach(Protocol):
    """Each method takes a call of every rank, in order (``answers`` of some), and the stage for messages."""

    def answers(self, calls: Sequence[RankCall], *, stage: str, interruptible: bool) -> list[Any]:
        """What the ranks answer, in the order of the calls."""

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

    def pairs(self, calls: Sequence[RankCall], dealt: Dealt, *, stage: str) -> Iterator[Pair]:
        """Facts and blocks that the ranks stream, as they appear."""

    def reports(self, calls: Sequence[RankCall]) -> dict[BlockRef, str]:
        """Calls for reports under way: lists of reports, each with the names of whom they are about."""


class Direct:
    """Calls each rank."""

    def __init__(self, ranks: Ranks, *, timeout_s: float) -> None:
        self._ranks, self._timeout_s = ranks, timeout_s

    def answers(self, calls: Sequence[RankCall], *, stage: str, interruptible: bool) -> list[Any]:
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
        rows = dealt.partition
        cuts = [(blocks or cut(dealt.batch.facts, rows[call.rank], adds)) if adds else [] for call in calls]
        given = [call._replace(blocks=of_rank) for call, of_rank in zip(calls, cuts, strict=True)]
        answers, refs = self._ranks.begun(given, dealt.rows(np.concatenate(rows)))
        arrived = wait(answers, stage=stage, timeout_s=self._timeout_s, interruptible=interruptible)
        parts = [rows[call.rank][place] for call, of_rank in zip(calls, cuts, strict=True) for place in of_rank]
        return Mapped(arrived, parts, refs)

    def pairs(self, calls: Sequence[RankCall], dealt: Dealt, *, stage: str) -> Iterator[Pair]:
        streams = self._ranks.begun_streams(calls, dealt.rows(np.concatenate(dealt.partition)))
        joined = Pairing(streams, partial(wait, stage=stage, timeout_s=self._timeout_s))
        waiting = partial(_waiting, stage)
        for ready in items(streams, stage=stage, timeout_s=self._timeout_s, waiting=waiting):
            yield from joined.pairs(ready)

    def reports(self, calls: Sequence[RankCall]) -> dict[BlockRef, str]:
        return self._ranks.begun(calls)[0]


class ByNode:
    """Calls a relay on each node.

    Args:
        relays: with the ranks of their nodes, in the order of ranks.
    """

    def __init__(self, relays: Sequence[tuple[Ranks, Any]], *, timeout_s: float) -> None:
        self.relays, self._timeout_s = relays, timeout_s

    def answers(self, calls: Sequence[RankCall], *, stage: str, interruptible: bool) -> list[Any]:
        begun = ray_calls.begun(
            [Call(relay.answers, (_of(ranks, calls), stage, self._timeout_s)) for ranks, relay in self.relays]
        )
        of_nodes = self._arrived(begun, stage=stage, interruptible=interruptible)
        return [answer for of_node in of_nodes for answer in of_node]

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
        for ranks, relay in self.relays:
            rows = dealt.of(ranks.actors)
            cuts = cut(dealt.batch.facts, rows, adds) if adds else []
            begun.append(Call(relay.map, (_of(ranks, given), dealt.rows(rows), cuts, stage, self._timeout_s)))
            parts += [rows[place] for place in cuts]
        of_nodes = self._arrived(ray_calls.begun(begun), stage=stage, interruptible=interruptible)
        answers = [answer for of_node, _ in of_nodes for answer in of_node]
        return Mapped(answers, parts, [ref for _, refs in of_nodes for ref in refs])

    def pairs(self, calls: Sequence[RankCall], dealt: Dealt, *, stage: str) -> Iterator[Pair]:
        begun = []
        for ranks, relay in self.relays:
            rows = dealt.of(ranks.actors)
            min_groups = max(1, len(np.unique(rows)) // MAX_STREAM_BLOCKS)
            args = _of(ranks, calls), dealt.rows(rows), min_groups, stage, self._timeout_s
            begun.append(Call(relay.first_pair, args))
        asked = self._named(ray_calls.begun(begun))
        relay_of = {ranks.relay_name: (ranks.first, relay) for ranks, relay in self.relays}
        while asked:
            found = soonest(asked, stage=stage, timeout_s=self._timeout_s + RELAY_S, interruptible=True)
            going_on = {asked.pop(ref): pair for ref, pair in found}
            going_on = {name: pair for name, pair in going_on.items() if pair is not None}
            ask = [Call(relay.next_pair, (first,)) for first, relay in map(relay_of.__getitem__, going_on)]
            asked.update(zip(ray_calls.begun(ask), going_on, strict=True))
            yield from going_on.values()
            time.sleep(NODE_PAUSE_S * len(asked))

    def reports(self, calls: Sequence[RankCall]) -> dict[BlockRef, str]:
        ask = [Call(relay.reports, (_of(ranks, calls), "report", self._timeout_s)) for ranks, relay in self.relays]
        return self._named(ray_calls.begun(ask))

    def _arrived(self, begun: Sequence[Any], *, stage: str, interruptible: bool) -> list[Any]:
        """What the nodes answered, in their order."""
        late_s = self._timeout_s + RELAY_S
        return wait(self._named(begun), stage=stage, timeout_s=late_s, interruptible=interruptible)

    def _named(self, begun: Sequence[Any]) -> dict[BlockRef, str]:
        return {ref: ranks.relay_name for ref, (ranks, _) in zip(begun, self.relays, strict=True)}


def _of(ranks: Ranks, calls: Sequence[RankCall]) -> list[RankCall]:
    return [calls[rank] for rank in ranks.actors]


@contextmanager
def _waiting(stage: str, names: Iterable[str]) -> Iterator[None]:
    """A look at streams."""
    with BEACON.waiting(named(names)):
        yield
    INTERRUPT.stop_before(stage)
    VERDICTS.check()
