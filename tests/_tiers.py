"""Cases of a parametrised test in two tiers: `make test` runs some of them, `make test-all` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[str], cases: Iterable[tuple[str, tuple[object, ...]]]) -> list[Any]:
    """Return the parameter sets of named cases, all marked slow but the quick ones.

    Args:
        cases: name, which becomes the id, and values of each.
    """
    cases = list(cases)
    assert set(quick) <= {name for name, _ in cases}, f"{set(quick)} are not all among the cases"
    marks = {True: (), False: (pytest.mark.slow,)}
    return [pytest.param(*values, id=name, marks=marks[name in quick]) for name, values in cases]
