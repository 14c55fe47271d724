"""Split rows into parts of equal work: over ranks, and into micro-batches of a token budget."""

from __future__ import annotations

import heapq
import itertools
from bisect import insort
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[Any]
Part = NDArray[np.int64]

# Non-empty parts of a state, as (sum, one of the rows), lightest first.
_State = list[tuple[int, int]]

# Rounds of swaps. Heavy tails need up to about 50; one row as heavy as a whole part would otherwise continue to give
# away all other rows of its part.
_MAX_SWAPS = 128


def attention_costs(lengths: Costs) -> Part:
    """Return [B] int64, lengths squared: the work of attention over a row, up to a factor. For a part, squares are
    summed.
    """
    return np.square(lengths.astype(np.int64))


def row_costs(prompts: Costs, responses: Costs, rows_per_prompt: Costs, *, by: str) -> Part:
    """Return [B] int64, the work of each row: that of its response, and its share of its prompt's.

    Args:
        prompts, responses: [B] tokens.
        rows_per_prompt: [B] number of rows for which the prompt is computed once; 1 if it is not shared.
        by: "tokens", or "attention" for squares of lengths.
    """
    work = attention_costs if by == "attention" else np.asarray
    of_prompts = work(prompts)
    costs: Part = work(prompts + responses) - of_prompts + of_prompts // rows_per_prompt
    return costs


def imbalance(costs: Costs, parts: Sequence[Part]) -> float:
    """Return the sum of the heaviest part over the mean of all parts; 1.0 is perfect, and the value if all
    costs are 0.
    """
    sums = [int(costs[part].sum()) for part in parts]
    return max(sums) * len(sums) / sum(sums) if any(sums) else 1.0


def partition(costs: Costs, parts: int, *, equal_counts: bool = False) -> list[Part]:
    """Split row indices into ``parts`` parts of nearly equal sums of costs.

    The largest differencing method (Karmarkar and Karp, 1982): a state is one way to split some of the rows. Join the
    two states of widest spread (heaviest minus lightest part), heaviest part with lightest, until one is left. It
    starts from one state per row. ``equal_counts`` starts from one state per ``parts`` rows of similar cost, one for
    each part. It ends with swaps between heavy and light parts, since a state cannot compensate for one very long row.
    Time is about O(B log B). The result is deterministic; a permutation of the rows changes only which of several equal
    rows is in which part.

    Args:
        costs: [B] non-negative integers: tokens of each row, or :func:`attention_costs`.
        parts: number of parts; with more parts than rows some are empty.
        equal_counts: let the numbers of rows differ by at most one (costs some balance).

    Returns:
        ``parts`` arrays of indices, each ascending, that together hold each row once.
    """
    if parts < 1:
        raise ValueError(f"found parts={parts}; expected 1 or more.")
    if len(costs) and costs.min() < 0:
        raise ValueError(f"found a cost of {costs.min()} in row {costs.argmin()}; expected 0 or more.")
    if parts == 1 or len(costs) == 0:
        return _grouped(np.zeros(len(costs), np.int64), parts)
    order = np.argsort(-costs.astype(np.int64), kind="stable")
    # From here on a row is its rank by cost, so that ties do not depend on the order of rows.
    ranked = costs[order].astype(np.int64)
    if not equal_counts:
        found = _differenced(ranked, parts, rows_per_state=1)
    else:
        # Rows of zero cost make all parts equally large.
        padded = np.append(ranked, np.zeros(-len(ranked) % parts, np.int64))
        even = np.stack(_differenced(padded, parts, rows_per_state=parts))
        found = [part[part < len(costs)] for part in _swapped(padded, even, num_rows=len(costs))]
    return [np.sort(order[part]) for part in found]


def _grouped(labels: Part, parts: int) -> list[Part]:
    """Return the rows of each label, ascending."""
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels, minlength=parts))[:-1])


def _differenced(costs: Part, parts: int, *, rows_per_state: int) -> list[Part]:
    """Apply largest differencing to rows that are sorted, costliest first."""

    def entry(state: _State, number: int) -> tuple[int, int, _State]:
        return state[0][0] * (len(state) == parts) - state[-1][0], number, state  # widest spread first, then oldest

    def widest() -> _State:
        return (states.pop() if states and (not joined or states[-1] < joined[0]) else heapq.heappop(joined))[2]

    rows = list(zip(costs.tolist(), range(len(costs)), strict=True))
    starts = range(0, len(rows), rows_per_state)
    # First states are taken from the end of a sorted list; only joined states need a heap, which stays small.
    states = sorted(
        (entry(rows[start : start + rows_per_state][::-1], number) for number, start in enumerate(starts)), reverse=True
    )
    joined: list[tuple[int, int, _State]] = []
    same_part = list(range(len(rows)))  # row -> another row of its part; one row of each part maps to itself
    for number in range(len(starts), 2 * len(starts) - 1):
        heapq.heappush(joined, entry(_join(widest(), widest(), parts, same_part), number))
    found = np.array(same_part)
    while not np.array_equal(found[found], found):
        found = found[found]
    return _grouped(np.unique(found, return_inverse=True)[1], parts)


def _join(one: _State, other: _State, parts: int, same_part: list[int]) -> _State:
    """Pair the heaviest part of one state with the lightest of the other, and so on; both states are consumed."""
    large, small = (one, other) if len(one) >= len(other) else (other, one)
    pairs = max(len(large) + len(small) - parts, 0)  # the heavier parts of ``small`` go to parts without a row
    moved = small[pairs:]
    for (light, row), (heavy, more) in zip(large[:pairs], reversed(small[:pairs]), strict=True):
        moved.append((light + heavy, row))
        same_part[more] = row
    del large[:pairs]
    if len(moved) == 1:
        insort(large, moved[0])
    else:
        large += moved
        large.sort()
    return large


def _swapped(costs: Costs, rows: Part, *, num_rows: int) -> Part:
    """Swap single rows between the heaviest part and the lightest, the next two, and so on, while the heaviest gets
    lighter.

    ``rows`` [parts, rows of a part] are indices into ``costs``; indices from ``num_rows`` on are not moved.
    """
    top = int(costs.max())
    # No spread is above ``top``, so this cost makes swaps of fixed rows never pay.
    shown = np.where(np.arange(len(costs)) < num_rows, costs, -1 - top).astype(np.int64)
    pairs = len(rows) // 2
    size = rows.shape[1]
    first = np.arange(pairs)[:, None] * size
    shift = np.arange(pairs)[:, None] * (2 * top + 2)  # makes all light parts one ascending list
    for _ in range(_MAX_SWAPS):
        sums = costs[rows].sum(axis=1)
        order = np.argsort(sums, kind="stable")
        light, heavy = order[:pairs], order[::-1][:pairs]
        gap = (sums[heavy] - sums[light])[:, None]
        if gap[0] <= 1:
            break
        rows[light] = np.take_along_axis(rows[light], np.argsort(shown[rows[light]], axis=1, kind="stable"), axis=1)
        gives, takes = shown[rows[heavy]], shown[rows[light]]
        wanted = np.maximum(gives - gap // 2, -1 - top)
        near = np.searchsorted((takes + shift).ravel(), (wanted + shift).ravel()).reshape(pairs, size) - first
        near = np.concatenate([np.clip(near - 1, 0, size - 1), np.clip(near, 0, size - 1)], axis=1)
        left = np.abs(gap - 2 * (np.tile(gives, 2) - np.take_along_axis(takes, near, axis=1)))
        best = left.argmin(axis=1)
        pays = np.flatnonzero(left[np.arange(pairs), best] < gap[:, 0])
        if 0 not in pays:
            break
        giver, taker = (heavy[pays], best[pays] % size), (light[pays], near[pays, best[pays]])
        rows[giver], rows[taker] = rows[taker], rows[giver]
    return rows


def micro_batches(lengths: Costs, max_tokens: int, *, count: int = 1, costs: Costs | None = None) -> list[Part]:
    """Split row indices into as few balanced parts as possible, each with a token sum within ``max_tokens``.

    A row longer than the budget gets its own part. The number of parts is never above that of first-fit-decreasing bin
    packing (at most 11/9 of the optimum plus one).

    Args:
        lengths: [B] tokens of each row.
        max_tokens: budget of one part.
        count: lowest number of parts, for ranks that must run equally many; some parts may then be empty.
        costs: [B] non-negative integers to balance among the parts; None means ``lengths``.

    Returns:
        At least ``count`` arrays of indices, each ascending; with ``count`` 0 none is empty, so no rows give no parts.
    """
    if max_tokens < 1:
        raise ValueError(
            f"found a budget of {max_tokens} tokens; a micro-batch needs at least 1. Set max_tokens_per_micro_batch."
        )
    costs = lengths if costs is None else costs
    alone = [np.array([row]) for row in np.flatnonzero(lengths > max_tokens)]
    rows = np.flatnonzero(lengths <= max_tokens)
    found = alone + [rows[part] for part in _within(lengths[rows], costs[rows], max_tokens, count - len(alone))]
    return found + [np.empty(0, np.int64) for _ in range(count - len(found))]


def _within(lengths: Costs, costs: Costs, max_tokens: int, count: int) -> list[Part]:
    """Return the most balanced of several splits within the budget, with the fewest parts, at least ``count``, for
    which any split fits.
    """
    if len(lengths) == 0:
        return []
    packed = _first_fit(lengths, max_tokens)
    fewest = -(-int(lengths.sum()) // max_tokens)
    for parts in itertools.count(max(fewest, count, 1)):
        ways = [
            partition(costs, parts),
            _lightest_fit(lengths, costs, parts, max_tokens),
            packed if len(packed) <= parts else None,
        ]
        fitting = [way for way in ways if way and _heaviest(lengths, way) <= max_tokens]
        if fitting:
            return min(fitting, key=lambda way: _heaviest(costs, way))
    raise AssertionError("first-fit stays within the budget")


def _heaviest(costs: Costs, parts: list[Part]) -> int:
    return max(int(costs[part].sum()) for part in parts)


def _first_fit(lengths: Costs, max_tokens: int) -> list[Part]:
    """Put each row, longest first, into the first part with enough capacity."""
    free = np.full(len(lengths), max_tokens)
    labels = np.empty(len(lengths), np.int64)
    used = 0
    for row in np.argsort(-lengths, kind="stable"):
        labels[row] = part = np.argmax(free[: used + 1] >= lengths[row])
        free[part] -= lengths[row]
        used = max(used, int(part) + 1)
    return _grouped(labels, used)


def _lightest_fit(lengths: Costs, costs: Costs, parts: int, max_tokens: int) -> list[Part] | None:
    """Put each row, costliest first, into the lightest part with enough capacity; return None if a row fits nowhere."""
    lightest = [(0, part) for part in range(parts)]
    # (-free tokens, cost, part) of parts without capacity for the previous row.
    most_free: list[tuple[int, int, int]] = []
    free = [max_tokens] * parts
    labels = np.empty(len(lengths), np.int64)
    for row in np.lexsort((-lengths, -costs)):
        length = int(lengths[row])
        while most_free and -most_free[0][0] >= length:
            heapq.heappush(lightest, heapq.heappop(most_free)[1:])
        while lightest and free[lightest[0][1]] < length:
            cost, part = heapq.heappop(lightest)
            heapq.heappush(most_free, (-free[part], cost, part))
        if not lightest:
            return None
        cost, part = lightest[0]
        heapq.heapreplace(lightest, (cost + int(costs[row]), part))
        free[part] -= length
        labels[row] = part
    return _grouped(labels, parts)
