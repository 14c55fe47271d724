"""The tools of the recipe: a typed function with a docstring, from which its schema follows."""

from __future__ import annotations

import re


def calculator(expression: str) -> str:
    """Compute a sum.

    Args:
        expression: such as 123+456.
    """
    found = re.fullmatch(r"(\d+)\+(\d+)", expression)
    if found is None:
        raise ValueError(f"expected a sum such as 123+456, not {expression!r}")
    return str(int(found[1]) + int(found[2]))
