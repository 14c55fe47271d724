"""Cutting rows into parts of equal work: over ranks, and into micro-batches of a token budget."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[Any]
Part = NDArray[np.int64]

# One item of a part; _FILL stands for a row of no tokens that only evens out the number of rows.
_FILL = -1


def partition(lengths: Lengths, parts: int, *, equal_counts: bool = False) -> list[Part]:
    """Split row indices into ``parts`` parts of nearly equal token sums.

    The largest differencing method (Karmarkar and Karp, 1982): keep partial solutions in a heap by the difference
    between their heaviest and lightest part, and join the two worst, heaviest part with lightest. Deterministic.

    Args:
        lengths: [B] tokens of each row.
        parts: number of parts; more parts than rows leave some empty.
        equal_counts: let the numbers of rows differ by at most one (costs some balance of tokens).

    Returns:
        ``parts`` arrays of indices, ascending in each, that together hold each row once.
    """
    if parts < 1:
        raise ValueError(f"found parts={parts}; rows can be split into 1 part or more.")
    if parts == 1 or len(lengths) == 0:
        return [np.arange(len(lengths), dtype=np.int64)] + [np.empty(0, np.int64) for _ in range(parts - 1)]
    # A state is (-spread, tie-breaker, sums heaviest first, rows of each part). All sums of a state are kept, so that
    # joining two states pairs the heaviest part of one with the lightest of the other.
    heap = [(-(sums[0] - sums[-1]), number, sums, rows) for number, (sums, rows) in enumerate(_first_states(lengths, parts, equal_counts))]
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        _, _, sums_a, rows_a = heapq.heappop(heap)
        _, _, sums_b, rows_b = heapq.heappop(heap)
        joined = [(a + b, left + right) for a, b, left, right in zip(sums_a, reversed(sums_b), rows_a, reversed(rows_b), strict=True)]
        joined.sort(key=lambda part: -part[0])
        sums = [total for total, _ in joined]
        heapq.heappush(heap, (-(sums[0] - sums[-1]), number, sums, [rows for _, rows in joined]))
        number += 1
    return [np.array(sorted(row for row in rows if row != _FILL), np.int64) for rows in heap[0][3]]


def _first_states(lengths: Lengths, parts: int, equal_counts: bool) -> list[tuple[list[int], list[list[int]]]]:
    """One state per row, or with ``equal_counts`` one per ``parts`` rows of similar length (one for each part)."""
    order = np.argsort(-lengths, kind="stable")
    if not equal_counts:
        return [([int(lengths[row])] + [0] * (parts - 1), [[int(row)]] + [[] for _ in range(parts - 1)]) for row in order]
    padded = [int(row) for row in order] + [_FILL] * (-len(order) % parts)
    states = []
    for start in range(0, len(padded), parts):
        rows = padded[start : start + parts]
        states.append(([0 if row == _FILL else int(lengths[row]) for row in rows], [[row] for row in rows]))
    return states


def micro_batches(lengths: Lengths, max_tokens: int, *, count: int = 1) -> list[Part]:
    """Split row indices into as few balanced parts as keep each token sum within ``max_tokens``.

    A row longer than the budget gets a part of its own. The number of parts is never above that of
    first-fit-decreasing bin packing (at most 11/9 of the optimum plus one).

    Args:
        lengths: [B] tokens of each row.
        max_tokens: budget of one part.
        count: lowest number of parts, for ranks that must run equally many; parts may be empty then.

    Returns:
        At least ``count`` arrays of indices, ascending in each; no part at all for no rows and ``count`` 0.
    """
    if max_tokens < 1:
        raise ValueError(f"found a budget of {max_tokens} tokens; a micro-batch needs at least 1. Set max_tokens_per_micro_batch.")
    order = np.argsort(-lengths, kind="stable")
    alone = [[int(row)] for row in order if lengths[row] > max_tokens]
    rows = [int(row) for row in order if lengths[row] <= max_tokens]
    packed: list[list[int]] = []
    if rows:
        packed = _first_fit(lengths, rows, max_tokens)
        fewest = max(-(-int(lengths[rows].sum()) // max_tokens), 1)
        for parts in range(max(fewest, count - len(alone)), max(len(packed), count - len(alone)) + 1):
            balanced = _lightest_first(lengths, rows, parts)
            if max(int(lengths[part].sum()) for part in balanced if part) <= max_tokens:
                packed = balanced
                break
    parts_ = alone + packed
    parts_ += [[] for _ in range(count - len(parts_))]
    return [np.array(sorted(part), np.int64) for part in parts_]


def _first_fit(lengths: Lengths, rows: list[int], max_tokens: int) -> list[list[int]]:
    """Each row, longest first, into the first part with room."""
    room: list[int] = []
    bins: list[list[int]] = []
    for row in rows:
        length = int(lengths[row])
        index = next((index for index, free in enumerate(room) if length <= free), len(room))
        if index == len(room):
            room.append(max_tokens)
            bins.append([])
        room[index] -= length
        bins[index].append(row)
    return bins


def _lightest_first(lengths: Lengths, rows: list[int], parts: int) -> list[list[int]]:
    """Each row, longest first, into the part that is lightest so far."""
    heap = [(0, index) for index in range(parts)]
    bins: list[list[int]] = [[] for _ in range(parts)]
    for row in rows:
        total, index = heap[0]
        bins[index].append(row)
        heapq.heapreplace(heap, (total + int(lengths[row]), index))
    return bins
