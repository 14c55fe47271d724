"""Programs for the tests of the code reward, and their results."""

from __future__ import annotations

import textwrap
from typing import Any

from verl_like_graders import code

SUMS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
ADD = {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]}
ASSERTS = ["assert add(1, 2) == 3", "assert add(3, 4) == 7"]
RIGHT_SUM = "print(sum(map(int, input().split())))"
RIGHT_ADD = "def add(a, b):\n    return a + b"


def result(program: str, truth: Any, **kwargs: Any) -> dict[str, Any]:
    return code.compute_score("code", f"So:\n```python\n{textwrap.dedent(program)}\n```\nDone.", truth, {}, **kwargs)


def passes(program: str, truth: Any, **kwargs: Any) -> bool:
    found = result(program, truth, **kwargs)
    assert found["score"] == found["acc"] == float(not found["why"])
    return bool(found["acc"])


def why(program: str, truth: Any, **kwargs: Any) -> str:
    """Return why a program fails; it must fail."""
    found = result(program, truth, **kwargs)
    assert found["score"] == 0.0
    return str(found["why"])
