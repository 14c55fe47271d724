"""Processes that answer for ranks: a relay for those of its node, a leader for the relays of several nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from verl_like.controller import ray_calls
from verl_like.controller.rank_calls import RankCall
from verl_like.controller.ray_calls import Call
from verl_like.controller.remote_batch import BlockRef
from verl_like.controller.streams import Pair

LATE_S = 5.0  # of each level, beyond a call's deadline, which relays keep: they know which rank has not answered
PAUSE_S = 5e-3  # per hub: their blocks are large, and so much later several are there at once


class Hub(NamedTuple):
    """
    Args:
        name: for messages.
        handle: of the process.
        nodes: the ranks of each of its nodes, ascending.
    """

    name: str
    handle: Any
    nodes: Sequence[range]

    @property
    def first(self) -> int:
        return self.nodes[0][0]

    @property
    def ranks(self) -> list[int]:
        return list(chain.from_iterable(self.nodes))


Look: TypeAlias = Callable[[dict[BlockRef, str]], list[tuple[BlockRef, list[Pair]]]]


def shares(hubs: Sequence[Hub], calls: Sequence[RankCall]) -> list[tuple[Hub, list[RankCall]]]:
    """The calls of each hub's ranks, in order; hubs none of whose ranks is called are left out."""
    of_rank = {call.rank: call for call in calls}
    return [(hub, [of_rank[rank] for rank in hub.ranks]) for hub in hubs if hub.first in of_rank]


def begun_on(hubs: Sequence[Hub], calls: Sequence[Call]) -> dict[BlockRef, str]:
    """Make a call to each hub; the references with the hubs' names."""
    return dict(zip(ray_calls.begun(calls), (hub.name for hub in hubs), strict=True))


def streamed(hubs: Sequence[Hub], first: Mapping[BlockRef, str], look: Look) -> Iterator[list[Pair]]:
    """What hubs stream, those of a moment together.

    Args:
        first: references of what ``first_pairs`` of each hub returns.
        look: waits for some of the references and gives their values.
    """
    asked, of_name = dict(first), {hub.name: hub for hub in hubs}
    while asked:
        found = look(asked)
        going_on = [of_name[asked.pop(ref)] for ref, _ in found]
        going_on = [hub for hub, (_, pairs) in zip(going_on, found, strict=True) if pairs]
        asked |= begun_on(going_on, [Call(hub.handle.more_pairs, (hub.first,)) for hub in going_on])
        yield [pair for _, pairs in found for pair in pairs]
        time.sleep(PAUSE_S * len(asked))
