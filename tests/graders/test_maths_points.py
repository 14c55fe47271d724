"""The points at which expressions are compared: names vary independently, so that an identity for some signs does not
count as one for all.
"""

from __future__ import annotations

from itertools import combinations, product

import pytest

from verl_like_graders.maths.points import MAX_INDEPENDENT, Scope, points
from verl_like_graders.maths.units import NO_UNIT, unit_of, without_unit
from verl_like_graders.maths.values import are_same

LETTERS = ["a", "b", "c", "d", "m", "n", "x", "y", "z", "R", "x_{1}", "x_{2}", "\\alpha", "\\beta"]


def with_branches(*names: str, is_of_whole_numbers: bool = False) -> Scope:
    return Scope(names=tuple(sorted(names)), has_branches=True, is_of_whole_numbers=is_of_whole_numbers)


@pytest.mark.parametrize("count", range(1, MAX_INDEPENDENT + 1))
def test_signs_of_up_to_four_names_take_every_combination(count: int) -> None:
    for names in combinations(LETTERS[:7], count):
        signs = {tuple(point.drawn[name] > 0 for name in names) for point in points(with_branches(*names))}
        assert signs == set(product([True, False], repeat=count))


def test_of_two_names_each_is_the_larger_under_every_pair_of_signs() -> None:
    for x, y in combinations(LETTERS, 2):
        found = [(point.drawn[x], point.drawn[y]) for point in points(with_branches(x, y))]
        for signs in product([True, False], repeat=2):
            larger = {abs(a) > abs(b) for a, b in found if (a > 0, b > 0) == signs}
            assert larger == {True, False}, (x, y, signs)


def test_whole_numbers_of_two_names_are_even_and_odd_in_every_combination() -> None:
    for m, n in combinations(LETTERS, 2):
        drawn = [point.drawn for point in points(with_branches(m, n, is_of_whole_numbers=True))]
        wholes = [(int(at[m]), int(at[n])) for at in drawn if at[m].denominator == at[n].denominator == 1]
        assert {(a % 2, b % 2) for a, b in wholes} == set(product([0, 1], repeat=2))
        assert {a > b for a, b in wholes} == {True, False}


@pytest.mark.parametrize("count", range(2, 13))
def test_no_product_of_names_is_its_absolute_value(count: int) -> None:
    for start in range(13):
        letters = "".join("abcdfghkmnpqrstuvwxyz"[start : start + count])
        assert not are_same(letters, f"|{letters}|"), letters
        assert are_same("".join(f"|{letter}|" for letter in letters), f"|{letters}|")


# --- units ---


def test_equal_units_have_equal_names_and_scales() -> None:
    same = [
        ["cm^2", "square centimeters", "sq cm", "centimetres squared"],
        ["m/s", "meters per second", "m s^{-1}"],
        ["mph", "miles per hour", "mi/h"],
        ["N m", "N·m", "J", "joules", "kg m^2/s^2"],
        ["kWh", "kilowatt-hours"],
        ["fl oz", "fluid ounces"],
        ["apples", "red apples"],
    ]
    for words in same:
        assert len({unit_of(word) for word in words}) == 1 and unit_of(words[0]) is not None, words
    assert len({unit_of(words[0]) for words in same}) == len(same)


def test_a_word_that_is_no_unit_is_a_part_of_the_text() -> None:
    for text in ("5 zorblats", "5 squared", r"5\text{ million}", "5K", "2mg", r"5\text{K}", "5 more apples", "5 hat"):
        assert without_unit(text) == (text, NO_UNIT)


def test_a_long_unit_takes_no_time_and_is_none() -> None:
    for text in ("m " * 900, "per " * 900, "m^9" * 300, "of apples " * 300, "(" * 900, "square " * 900, "m^999999999"):
        assert unit_of(text) is None
