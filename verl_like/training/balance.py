"""Assign rows to ranks: mini-batches are cut first, then each rank gets equal work.

Rows stay on the node that wrote them, and groups stay whole, if that is even enough. The assignment is a fact of the
batch, ``rank``, which survives ``select``. It is made twice a step: after the rollout, for all stages before the
update, and again before the update, because rows may have left the batch and the slowest rank sets the pace. If no row
has left, both are equal, and a rank updates on the rows it wrote itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from verl_like.controller.blocks import cut
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.ops.partition import imbalance, partition, row_costs
from verl_like.protocol import Array

MAX_IMBALANCE = 1.02  # above it, single rows are assigned: they balance better, but groups are split over ranks


@dataclass(frozen=True, slots=True)
class RankRows:
    """The rows of each rank, in the mini-batches of one learner.

    Args:
        rows: ``rows[rank]`` [n] row numbers, mini-batch after mini-batch.
        mini_batches: ``mini_batches[rank][m]`` positions among the rank's rows.
    """

    rows: list[Array]
    mini_batches: list[list[Array]]


@dataclass(slots=True)
class Balance:
    """Gives each row its rank.

    Args:
        mini_batch_prompts: prompts per cut; every learner's mini-batch contains whole cuts.
        nodes: number of nodes, with equally many ranks on each; ranks are sorted by node. With more than one, rows stay
            on the node in their fact ``node`` if possible, so that few blocks travel and the driver passes on few
            references. A row from another node (-1) may go to any.
        by: "tokens", or "attention" for the sum of squares.
        shares_prompts: whether rows of a group compute their prompt once.
        fact: name of the fact with the rank of each row.
    """

    mini_batch_prompts: int
    ranks: int
    nodes: int = 1
    by: str = "tokens"
    shares_prompts: bool = False
    fact: str = "rank"
    _last: tuple[tuple[Array, ...], Array] | None = field(default=None, init=False)  # the last input, and its ranks

    def assign(self, batch: RemoteBatch, *, skips_zeros: bool = False) -> float:
        """Set the fact with the rank of each row: mini-batches are cut by prompt, and each is balanced over the ranks.

        The cut comes first, so the rows of an update do not depend on the number of ranks or on lengths.

        Args:
            skips_zeros: whether rows without advantage cost nothing, because the update skips them.

        Returns:
            The work of the busiest rank over the mean; 1.0 is even.
        """
        groups = batch.facts["group_id"]
        runs = batch.facts["has_advantage"].astype(np.int64) if skips_zeros else np.ones(len(batch), np.int64)
        sequence_ranks = np.bincount(groups, weights=runs).astype(np.int64)[groups] if self.shares_prompts else runs
        costs = runs * row_costs(
            batch.facts["prompt_tokens"], batch.facts["response_tokens"], np.maximum(sequence_ranks, 1), by=self.by
        )
        home = batch.facts["node"] if self.nodes > 1 else np.zeros(len(batch), np.int64)
        given = costs, groups, home
        if self._last is None or not all(map(np.array_equal, given, self._last[0])):
            self._last = given, self._rank_of(*given)
        batch.facts[self.fact] = self._last[1]
        return imbalance(costs, self.rows(batch))

    def rows(self, batch: RemoteBatch) -> list[Array]:
        """Return the row numbers of each rank, ascending."""
        return by_rank(batch, self.ranks, fact=self.fact)

    def shares(self, batch: RemoteBatch, *, mini_batch_prompts: int) -> RankRows:
        """Return the rows of each rank, in mini-batches of this many prompts."""
        return rank_rows(batch, mini_batch_prompts=mini_batch_prompts, ranks=self.ranks, fact=self.fact)

    def _rank_of(self, costs: Array, groups: Array, home: Array) -> Array:
        rank_of = np.empty(len(costs), np.int64)
        for members in _cuts(groups, self.mini_batch_prompts):
            assigned = _assigned(costs[members], groups[members], home[members], ranks=self.ranks, nodes=self.nodes)
            for rank, part in enumerate(assigned):
                rank_of[members[part]] = rank
        return rank_of


def by_rank(batch: RemoteBatch, ranks: int, *, fact: str = "rank") -> list[Array]:
    """Return the row numbers of each rank, ascending."""
    return _split(np.arange(len(batch)), batch.facts[fact], ranks)


def by_reader(batch: RemoteBatch, nodes: Sequence[range], columns: Iterable[str]) -> list[Array]:
    """Return the row numbers of each block of these columns, if one process makes all of them.

    A block has no rows of two nodes, nor of two ranks of a single node.
    """
    readers = by_rank(batch, nodes[-1].stop)
    if len(nodes) > 1:
        readers = [np.concatenate([readers[rank] for rank in node]) for node in nodes]
    return [rows[part] for rows in readers for part in cut(batch.facts, rows, columns)]


def rank_rows(batch: RemoteBatch, *, mini_batch_prompts: int, ranks: int, fact: str = "rank") -> RankRows:
    """Return the rows of each rank by this fact, in mini-batches of this many prompts."""
    cuts = _cuts(batch.facts["group_id"], mini_batch_prompts)
    rank_of = batch.facts[fact]
    of_cuts = [_split(members, rank_of[members], ranks) for members in cuts]
    parts = [list(own) for own in zip(*of_cuts, strict=True)]
    starts = [np.cumsum([0, *map(len, own)]) for own in parts]
    mini_batches = [[np.arange(a, b) for a, b in zip(s[:-1], s[1:], strict=True)] for s in starts]
    return RankRows([np.concatenate(own) for own in parts], mini_batches)


def _cuts(groups: Array, prompts: int) -> list[Array]:
    """Return the rows of each mini-batch, ascending; ``groups`` [B] are numbered from 0 in the batch's order."""
    cut = groups // prompts
    return [np.flatnonzero(cut == number) for number in np.unique(cut)]


def _assigned(costs: Array, groups: Array, home: Array, *, ranks: int, nodes: int) -> list[Array]:
    """Return the rows of each rank, ascending: whole groups if they balance, else single rows.

    Single rows stay on their group's node unless only moving them between nodes is more even.

    Args:
        home: [B] the node of each row, -1 for none of these.
    """
    _, first, group_of = np.unique(groups, return_index=True, return_inverse=True)
    of_groups, home_of_group = np.bincount(group_of, weights=costs).astype(np.int64), home[first]
    stays = _within_share(of_groups, home_of_group, nodes)
    node_of_group = _settled(of_groups, home_of_group, stays, nodes)
    parts = _over_ranks(of_groups, node_of_group, ranks=ranks, nodes=nodes)
    if imbalance(of_groups, parts) <= MAX_IMBALANCE:
        rank_of = np.empty(len(of_groups), np.int64)
        for rank, part in enumerate(parts):
            rank_of[part] = rank
        return _split(np.arange(len(costs)), rank_of[group_of], ranks)
    node_of_row = _settled(costs, home_of_group[group_of], stays[group_of], nodes)
    parts = _over_ranks(costs, node_of_row, ranks=ranks, nodes=nodes)
    if nodes == 1 or imbalance(costs, parts) <= MAX_IMBALANCE:
        return parts
    return min(parts, partition(costs, ranks), key=partial(imbalance, costs))


def _within_share(costs: Array, home: Array, nodes: int) -> Array:
    """Return [G] bool: groups that their node keeps, the costliest first, up to the node's share."""
    share, taken, stays = costs.sum() / nodes, [0] * nodes, np.zeros(len(costs), bool)
    for group in np.argsort(-costs, kind="stable").tolist():
        node, cost = int(home[group]), int(costs[group])
        if node >= 0 and taken[node] + cost <= share:
            taken[node] += cost
            stays[group] = True
    return stays


def _settled(costs: Array, home: Array, stays: Array, nodes: int) -> Array:
    """Return the node of each item: its home if it stays, else the node with the least work."""
    node_of = home.copy()
    taken = np.bincount(home[stays], weights=costs[stays], minlength=nodes)
    lightest = [(cost, node) for node, cost in enumerate(taken.tolist())]
    heapq.heapify(lightest)
    moving = np.flatnonzero(~stays)
    for item in moving[np.argsort(-costs[moving], kind="stable")].tolist():
        cost, node = lightest[0]
        node_of[item] = node
        heapq.heapreplace(lightest, (cost + int(costs[item]), node))
    return node_of


def _over_ranks(costs: Array, node_of: Array, *, ranks: int, nodes: int) -> list[Array]:
    """Return the items of each rank, ascending, out of those of its node."""
    of_nodes = _split(np.arange(len(costs)), node_of, nodes)
    return [own[part] for own in of_nodes for part in partition(costs[own], ranks // nodes)]


def _split(rows: Array, rank_of: Array, ranks: int) -> list[Array]:
    """Return the rows of each rank in their present order."""
    order = np.argsort(rank_of, kind="stable")
    return np.split(rows[order], np.cumsum(np.bincount(rank_of, minlength=ranks))[:-1])
