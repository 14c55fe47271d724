"""How sure a difference between two groups of numbers is: Welch's t-test, permutations, and a paired bootstrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, variance

import numpy as np
from mpmath import betainc

LEVEL = 0.95  # of the intervals
MAX_PERMUTATIONS = 200_000  # that are enumerated: 10 against 10
NUM_RESAMPLES = 10_000
MAX_DRAWS = 2e8  # of a bootstrap; with more rows, it has fewer resamples
CHUNK = 5_000_000  # numbers in memory at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A difference of two means.

    Args:
        value: second mean minus first mean.
        interval: its 95 % confidence interval; None without any variance.
        p: two-sided probability of a difference as large as this one if there is none; None if it is not computed.
        permutation_p: the same by exact enumeration; None if there are too many permutations.
        smallest_p: the smallest that the permutations could give.
    """

    value: float
    interval: tuple[float, float] | None
    p: float | None = None
    permutation_p: float | None = None
    smallest_p: float | None = None


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare the means of two independent groups of at least two numbers each, whose variances may differ.

    t = (mean2 - mean1) / sqrt(var1/n1 + var2/n2), with the degrees of freedom of Welch and Satterthwaite.
    """
    value = fmean(second) - fmean(first)
    permuted, smallest = permutation_p(first, second)
    shares = [variance(numbers) / len(numbers) for numbers in (first, second)]
    error = math.sqrt(sum(shares))
    if error <= 1e-12 * max(map(abs, (*first, *second))):  # rounding: equal numbers have a variance of 1e-34
        return Difference(value=value, interval=None, permutation_p=permuted, smallest_p=smallest)
    freedom = sum(shares) ** 2 / sum(
        share**2 / (len(numbers) - 1) for share, numbers in zip(shares, (first, second), strict=True)
    )
    reach = t_quantile(freedom) * error
    return Difference(
        value=value,
        interval=(value - reach, value + reach),
        p=t_tails(value / error, freedom),
        permutation_p=permuted,
        smallest_p=smallest,
    )


def t_tails(t: float, freedom: float) -> float:
    """Return the probability that a value of Student's distribution is as far from 0 as ``t``."""
    return float(betainc(freedom / 2, 0.5, 0, freedom / (freedom + t * t), regularized=True))


def t_quantile(freedom: float) -> float:
    """Return the t that a value of Student's distribution exceeds in absolute value with probability 1 - ``LEVEL``."""
    low, high = 0.0, 1.0
    while t_tails(high, freedom) > 1 - LEVEL:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tails(middle, freedom) > 1 - LEVEL else (low, middle)
    return high


def permutation_p(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the share of all divisions into groups of these sizes with a difference at least as large.

    The second number is the smallest share that any values could have: 1 or, with groups of equal size, 2 divisions,
    because the groups may change places. Both are None if there are too many divisions.
    """
    numbers, size = [*first, *second], len(first)
    count = math.comb(len(numbers), size)
    if count > MAX_PERMUTATIONS:
        return None, None
    total, rest = sum(numbers), len(second)

    def distance(part: float) -> float:
        return abs((total - part) / rest - part / size)

    observed = distance(sum(first)) * (1 - 1e-9)
    extreme = sum(distance(sum(part)) >= observed for part in combinations(numbers, size))
    return extreme / count, (2 if size == rest else 1) / count


def paired_bootstrap(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare the means of paired numbers: the pairs are drawn again with replacement.

    The interval has the percentiles of the means of the resamples, which are the same in each call.
    """
    differences = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    count = len(differences)
    resamples = max(min(NUM_RESAMPLES, int(MAX_DRAWS / count)), 200)
    draws, means = np.random.default_rng(0), []
    at_once = max(CHUNK // count, 1)
    for start in range(0, resamples, at_once):
        rows = draws.integers(0, count, size=(min(at_once, resamples - start), count))
        means.append(differences[rows].mean(axis=1))
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail])
    return Difference(value=float(differences.mean()), interval=(float(low), float(high)))
