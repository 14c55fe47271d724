"""Tests of significance against closed forms, and against numbers computed by hand."""

from __future__ import annotations

import math
import random

import pytest

from verl_like.compare import statistics
from verl_like.compare.statistics import paired_bootstrap, permutation_p, t_quantile, t_tails, welch


@pytest.mark.parametrize("t", [0.0, 0.5, 1.0, 7.0, -7.0])
def test_the_tails_of_students_distribution_have_their_closed_forms(t: float) -> None:
    assert t_tails(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(abs(t)))
    assert t_tails(t, 2) == pytest.approx(1 - abs(t) / math.sqrt(2 + t * t))


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.7062), (10, 2.2281), (1000, 1.9623)])
def test_the_quantile_is_that_of_the_tables(freedom: float, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=5e-5)


def test_welch_by_hand() -> None:
    found = welch([1, 2, 3], [2, 4, 6])
    # Variances 1 and 4 of three numbers each: t = 2 / sqrt(1/3 + 4/3), degrees of freedom (5/3)^2 / (17/18) = 50/17.
    error, freedom = math.sqrt(5 / 3), 50 / 17
    assert found.value == 2 and found.p == pytest.approx(t_tails(2 / error, freedom))
    reach = t_quantile(freedom) * error
    assert found.interval == pytest.approx((2 - reach, 2 + reach))


def test_the_sequence_of_the_groups_changes_only_the_sign() -> None:
    one, other = welch([1, 2, 4], [2, 4, 7]), welch([2, 4, 7], [1, 2, 4])
    assert one.value == -other.value and one.p == pytest.approx(other.p)
    assert one.interval == pytest.approx(tuple(-end for end in reversed(other.interval or ())))


def test_the_interval_excludes_zero_exactly_if_p_is_below_a_twentieth() -> None:
    draws = random.Random(0)
    for _ in range(200):
        found = welch([draws.gauss(0, 1) for _ in range(4)], [draws.gauss(1, 2) for _ in range(3)])
        assert found.interval is not None and found.p is not None
        assert (found.interval[0] <= 0 <= found.interval[1]) == (found.p >= 0.05)


def test_without_variance_there_is_no_interval() -> None:
    found = welch([0.1 + 0.2] * 3, [0.3] * 3)
    assert found.interval is None and found.p is None and found.permutation_p == 1.0


def test_permutations_by_hand() -> None:
    # Six divisions of 1, 2, 3, 4 into pairs; only the observed one and its mirror image differ by 2.
    assert permutation_p([1, 2], [3, 4]) == (pytest.approx(2 / 6), pytest.approx(2 / 6))
    # Of ten divisions of 1 to 5, 4+5 against 1+2+3 and 1+2 against 3+4+5 are 2.5 apart, and none is further apart.
    assert permutation_p([4, 5], [1, 2, 3]) == (pytest.approx(2 / 10), pytest.approx(1 / 10))
    assert permutation_p([1, 1], [1, 1]) == (1.0, pytest.approx(2 / 6))


def test_too_many_permutations_are_not_enumerated() -> None:
    numbers = [float(number) for number in range(20)]
    assert permutation_p(numbers, numbers) == (None, None)


def test_the_bootstrap_of_equal_differences_has_no_width() -> None:
    found = paired_bootstrap([0.0, 0.5, 0.25], [0.25, 0.75, 0.5])
    assert found.value == pytest.approx(0.25) and found.interval == pytest.approx((0.25, 0.25))


def test_the_bootstrap_of_many_pairs_has_the_width_of_the_normal_distribution() -> None:
    draws = random.Random(1)
    second = [draws.gauss(0.1, 1) for _ in range(400)]
    found = paired_bootstrap([0.0] * 400, second)
    assert found.interval is not None
    assert found.interval[1] - found.interval[0] == pytest.approx(2 * 1.96 / math.sqrt(400), rel=0.1)
    assert found == paired_bootstrap([0.0] * 400, second), "a repeated command prints the same"


def test_many_rows_are_resampled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(2)
    second = [draws.random() for _ in range(50)]
    monkeypatch.setattr(statistics, "CHUNK", 500)
    found = paired_bootstrap([0.0] * 50, second)
    assert found.interval is not None and found.interval[0] < found.value < found.interval[1]
