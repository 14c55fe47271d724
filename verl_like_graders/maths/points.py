"""The points at which expressions are compared: a value for each name.

Signs and sizes follow a plan, because random draws leave gaps: ``xy`` equals ``|xy|`` wherever both names have the same
sign, and ``|x|-|y|`` equals ``||x|-|y||`` wherever x is the larger. At every point each name has its own sign and its
own size (below or above 1), given by the parity of the point's index under a mask. With distinct masks, any two of
these bits occur in all four combinations. One-bit masks, which are independent of each other, come first. Masks with an
odd number of bits follow, and any three of those occur in all eight combinations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

# points for expressions without branches; if these are equal at random points, they are equal everywhere
NUM_SMOOTH = 4
NUM_PLANNED = 16  # maximum for expressions with branches
MAX_INDEPENDENT = 4  # names whose signs take all combinations at that many points
NUM_DRAWN = 12  # further points with random signs, for more names


@dataclass(frozen=True, slots=True)
class Scope:
    """What determines the points: the names, and the operations on them."""

    names: tuple[str, ...] = ()
    has_branches: bool = False
    is_of_whole_numbers: bool = False  # factorials and roundings
    has_applications: bool = False  # as f(x), whose sign is random

    @staticmethod
    def joined(scopes: Iterable[Scope]) -> Scope:
        """Return the common scope of expressions that are compared with each other."""
        found = list(scopes)
        return Scope(
            names=tuple(sorted({name for scope in found for name in scope.names})),
            has_branches=any(scope.has_branches for scope in found),
            is_of_whole_numbers=any(scope.is_of_whole_numbers for scope in found),
            has_applications=any(scope.has_applications for scope in found),
        )


@dataclass(frozen=True, slots=True)
class Point:
    index: int
    drawn: Mapping[str, Fraction]


@lru_cache(maxsize=4096)
def points(scope: Scope) -> tuple[Point, ...]:
    """Return points with rational values, then, for factorials and roundings, points with whole numbers."""
    if not scope.has_branches:
        count = NUM_SMOOTH
    else:
        count = NUM_PLANNED + NUM_DRAWN if scope.has_applications else _num_points(scope.names)
    found = [Point(index, dict(_rationals(scope.names, index, count))) for index in range(count)]
    if scope.is_of_whole_numbers and scope.names:
        count = _num_points(scope.names)
        found += [Point(len(found) + index, dict(_wholes(scope.names, index, count))) for index in range(count)]
    return tuple(found)


def _num_points(names: tuple[str, ...]) -> int:
    """Return enough points for all signs and sizes of two names and all signs of up to four, then rely on chance."""
    return min(max(2, 1 << 2 * len(names)), NUM_PLANNED) + (NUM_DRAWN if len(names) > MAX_INDEPENDENT else 0)


def drawn_value(name: str, index: int) -> Fraction:
    """Return a rational number of either sign that depends only on the name and the point."""
    drawn = _drawn(f"sign {index} {name}")
    return _rational(name, index, drawn % 2, drawn // 2 % 2)


def _plan(names: tuple[str, ...], index: int, count: int) -> Iterator[tuple[str, int, int]]:
    """Yield each name with two bits: its sign (or, for whole numbers, its parity) and its size."""
    planned = min(count, NUM_PLANNED)
    masks = sorted(range(1, planned), key=lambda mask: (mask.bit_count() != 1, mask.bit_count() % 2 == 0, mask))
    bits = [(index & mask).bit_count() % 2 for mask in masks] if index < planned else []
    for i, name in enumerate(names):
        drawn = _drawn(f"plan {index} {name}")
        sign = bits[i] if i < len(bits) else drawn % 2
        yield name, sign, bits[i + len(names)] if i + len(names) < len(bits) else drawn // 2 % 2


def _rationals(names: tuple[str, ...], index: int, count: int) -> Iterator[tuple[str, Fraction]]:
    for name, is_negative, is_large in _plan(names, index, count):
        yield name, _rational(name, index, is_negative, is_large)


def _wholes(names: tuple[str, ...], index: int, count: int) -> Iterator[tuple[str, Fraction]]:
    for name, is_odd, is_large in _plan(names, index, count):
        yield name, Fraction(4 + 24 * is_large + 2 * (_drawn(f"{index} {name}") % 11) + is_odd)


def _rational(name: str, index: int, is_negative: int, is_large: int) -> Fraction:
    """Return a number between 1/4 and 1, or between 1 and 4 if it is large, with its sign."""
    drawn = _drawn(f"{index} {name}")
    over = 1030 + drawn % 3060 if is_large else 257 + drawn % 740
    return Fraction(-over if is_negative else over, 1024 - 2 * (drawn // 3840 % 10) - 1)


def _drawn(text: str) -> int:
    # Not a linear hash such as crc32: the hashes of several names would cancel each other.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
