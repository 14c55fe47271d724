"""Calls ranks through a tree of aggregators; each process answers for all ranks below it.

With ten calls per rank, Ray calls and block references made up nearly all of the driver's cost of a step. Therefore a
driver of several nodes addresses nodes and blocks of nodes instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from verl_like.controller import ray_calls
from verl_like.controller.blocks import Block
from verl_like.controller.ray_calls import Call
from verl_like.controller.streams import Pair
from verl_like.controller.transport import Answers, RankCall, RowSlices
from verl_like.controller.wait import Waits

LATE_S = 5.0  # per level, beyond a call's deadline; node aggregators enforce it because they know the late rank
REPORT_S = 20.0  # for a report, which is quick; its call occupies one of an aggregator's few threads
PAUSE_S = 5e-3  # per branch: their blocks are large, and after this pause several are ready at once


class Branch(NamedTuple):
    """A tree aggregator as its caller sees it.

    Args:
        name: name in messages.
        handle: actor handle of its process.
        nodes: the ranks of each node below it, ascending.
    """

    name: str
    handle: Any
    nodes: Sequence[range]

    @property
    def first(self) -> int:
        return self.nodes[0][0]

    @property
    def num_ranks(self) -> int:
        return sum(map(len, self.nodes))


class _Share(NamedTuple):
    """A branch's share of the calls."""

    branch: Branch
    calls: Sequence[RankCall]
    rows: slice
    nodes: slice


@dataclass(frozen=True, slots=True)
class Tree:
    """Calls aggregators that together cover all ranks.

    Args:
        branches: in rank order.
    """

    branches: Sequence[Branch]
    late_s: float = LATE_S

    @property
    def leaves(self) -> list[range]:
        return [node for branch in self.branches for node in branch.nodes]

    def calls(
        self,
        calls: Sequence[RankCall],
        rows: RowSlices | None = None,
        cuts: Sequence[Sequence[Block]] | None = None,
        *,
        stage: str,
        timeout_s: float,
    ) -> list[Call]:
        return [
            Call(
                share.branch.handle.answers,
                (
                    share.calls,
                    None if rows is None else rows(share.rows),
                    None if cuts is None else cuts[share.nodes],
                    stage,
                    timeout_s,
                ),
                who=share.branch.name,
            )
            for share in self._shares(calls)
        ]

    def answers(self, made: Sequence[Any], values: Sequence[Any]) -> Answers:
        return [each for answers, _ in values for each in answers], [ref for _, refs in values for ref in refs]

    def report_calls(self, calls: Sequence[RankCall]) -> list[Call]:
        shares = self._shares(calls)
        return [Call(share.branch.handle.reports, (share.calls,), who=share.branch.name) for share in shares]

    def stream_calls(
        self, calls: Sequence[RankCall], rows: RowSlices, *, num_groups: int, stage: str, timeout_s: float
    ) -> list[Call]:
        found = []
        for share in self._shares(calls):
            # Ranks take groups from a queue at the same rate.
            of_branch = num_groups * len(share.calls) // len(calls)
            args = share.calls, rows(share.rows), of_branch, stage, timeout_s
            found.append(Call(share.branch.handle.first_pairs, args, who=share.branch.name))
        return found

    def pairs(self, calls: Sequence[Call], made: Sequence[Any], waits: Waits) -> Iterator[list[Pair]]:
        waiting = ray_calls.answers_of(calls, made)
        of_name = {branch.name: branch for branch in self.branches}
        while waiting:
            found = waits.first(waiting)
            answered = [(of_name[waiting.pop(ref)], bool(pairs)) for ref, pairs in found]
            more = [
                Call(each.handle.more_pairs, (each.first,), who=each.name) for each, has_more in answered if has_more
            ]
            waiting |= ray_calls.answers_of(more, ray_calls.begun(more))
            yield list(chain.from_iterable(pairs for _, pairs in found))
            time.sleep(PAUSE_S * len(waiting))

    def _shares(self, calls: Sequence[RankCall]) -> list[_Share]:
        shares: list[_Share] = []
        rank = row = node = 0
        for branch in self.branches:
            own = calls[rank : rank + branch.num_ranks]
            num_rows = sum(call.num_rows for call in own)
            shares.append(_Share(branch, own, slice(row, row + num_rows), slice(node, node + len(branch.nodes))))
            rank, row, node = rank + len(own), row + num_rows, node + len(branch.nodes)
        assert rank == len(calls), f"{len(calls)} calls for {rank} ranks of the tree"
        return shares
