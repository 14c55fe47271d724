"""Cases of a parametrised test in tiers: `make test` runs the quick ones, `.ci/run` the slow ones too, a night all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(
    quick: Collection[str], cases: Iterable[tuple[str, tuple[object, ...]]], *, nightly: Collection[str] = ()
) -> list[Any]:
    """Return the parameter sets of named cases, all marked slow but the quick and the nightly ones.

    Args:
        cases: name, which becomes the id, and values of each.
    """
    cases = list(cases)
    names = {name for name, _ in cases}
    assert {*quick, *nightly} <= names, f"{ {*quick, *nightly} - names } are not among the cases"
    assert not {*quick} & {*nightly}
    marks = dict.fromkeys(names, pytest.mark.slow) | dict.fromkeys(nightly, pytest.mark.nightly)
    return [pytest.param(*values, id=name, marks=() if name in quick else marks[name]) for name, values in cases]
