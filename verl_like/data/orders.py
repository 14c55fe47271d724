"""The row order of an epoch, which depends only on (seed, epoch)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verl_like.config.schema import DataConfig

Rows = NDArray[np.int64]
Order = Callable[[int], Sequence[int] | Rows]  # epoch -> row indices


def epoch_order(file_numbers: Sequence[int] | Rows, data: DataConfig, *, seed: int) -> Order:
    """Return the order that the configuration specifies.

    Args:
        file_numbers: for each row, the position of its file in ``data.train_files``.

    Raises:
        ValueError: if ``data.train_weights`` gives a share to a file without rows, or no prompt to a file.
    """
    if not data.train_weights:
        return EveryRow(len(file_numbers), seed if data.shuffle else None)
    rows = [np.flatnonzero(np.asarray(file_numbers) == file) for file in range(len(data.train_files))]
    num_drawn = len(file_numbers) // data.train_batch_size * data.train_batch_size
    counts = _shares(data.train_weights, num_drawn)
    for name, of_file, count in zip(data.train_files, rows, counts, strict=True):
        if not len(of_file):
            raise ValueError(
                f"data.train_weights gives {name} a share, but none of its rows is left to train on "
                f"(data.train_max_samples, data.overlong_prompts). Remove it from data.train_files, or keep its rows."
            )
        if not count:
            raise ValueError(
                f"data.train_weights={data.train_weights} gives {name} none of the {num_drawn} prompts of an epoch; "
                f"expected at least one. Raise its weight, or remove the file."
            )
    return Mixture(rows, counts, seed if data.shuffle else None)


@dataclass(frozen=True, slots=True)
class EveryRow:
    """Every row once; in a new order for each epoch if there is a seed, otherwise in file order."""

    num_rows: int
    seed: int | None

    def __call__(self, epoch: int) -> Rows:
        if self.seed is None:
            return np.arange(self.num_rows)
        return np.random.default_rng([self.seed, epoch]).permutation(self.num_rows)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Rows of several files, each file's spread evenly over the epoch (:func:`_spread`).

    A file's passes over its rows continue across epochs: a small file with a large share is repeated several times, and
    the next epoch continues a large file after the rows used by this one.

    Args:
        rows: row indices of each file.
        counts: number of rows of each file in an epoch.
        seed: seed of the order of each pass; None keeps the order of the file.
    """

    rows: Sequence[Rows]
    counts: Sequence[int]
    seed: int | None

    def __call__(self, epoch: int) -> list[int]:
        drawn = [iter(self._drawn(file, epoch)) for file in range(len(self.rows))]
        return [int(next(drawn[file])) for file in _spread(self.counts)]

    def _drawn(self, file: int, epoch: int) -> Rows:
        """Return the rows of a file in an epoch."""
        size, count = len(self.rows[file]), self.counts[file]
        first, skipped = divmod(epoch * count, size)
        last = ((epoch + 1) * count - 1) // size
        return np.concatenate([self._pass(file, number) for number in range(first, last + 1)])[skipped:][:count]

    def _pass(self, file: int, number: int) -> Rows:
        if self.seed is None:
            return self.rows[file]
        return np.random.default_rng([self.seed, file, number]).permutation(self.rows[file])


def _spread(counts: Sequence[int]) -> Iterator[int]:
    """Yield the file of each position of an epoch: among the first t positions a file has its share of t, within less
    than 1.

    A file's next prompt is allowed as soon as the file's count is then no more than 1 - 1/m above its share, and due
    before it would be more than 1 - 1/m below. Of the allowed prompts, the one that is due first is next. With m = 2
    (files - 1) that is always possible (Tijdeman, The chairman assignment problem, 1980). A batch is the difference of
    two such prefixes, so a file's count in it differs from its share by less than 2.
    """
    total, m = sum(counts), max(2 * (len(counts) - 1), 1)
    waiting = [(_first_position(0, count, total, m), file) for file, count in enumerate(counts)]
    heapq.heapify(waiting)
    given, ready = [0] * len(counts), list[tuple[int, int]]()  # ready: (the position at which it is due, file)
    for position in range(1, total + 1):
        while waiting and waiting[0][0] <= position:
            _, file = heapq.heappop(waiting)
            due = total * ((given[file] + 1) * m - 1) // (counts[file] * m) + 1
            heapq.heappush(ready, (due, file))
        _, file = heapq.heappop(ready)
        given[file] += 1
        if given[file] < counts[file]:
            heapq.heappush(waiting, (_first_position(given[file], counts[file], total, m), file))
        yield file


def _first_position(given: int, count: int, total: int, m: int) -> int:
    """Return the first position t, counted from 1, at which ``t * count / total - given`` is 1/m or more."""
    return -(-total * (given * m + 1) // (count * m))


def _shares(weights: Sequence[float], total: int) -> list[int]:
    """Split ``total`` in proportion to the weights; the remainder goes to the parts that rounding reduced most."""
    largest = max(weights)
    parts_of_largest = np.array([weight / largest for weight in weights])  # their sum cannot overflow
    exact = parts_of_largest / parts_of_largest.sum() * total
    parts = np.floor(exact).astype(np.int64)
    most_cut = np.argsort(parts - exact, kind="stable")
    parts[most_cut[: total - int(parts.sum())]] += 1
    return [int(part) for part in parts]
