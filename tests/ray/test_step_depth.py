"""How many functions of the project a step passes, by a trace of one real step on two workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.trace_step import measured, traced_step

# Figure of tests/tools/trace_step.py -> (the most functions, why it does not hold yet).
BOUNDS = {
    "functions_step_to_loss": (12, "20 today"),
    "functions_step_to_submit": (14, "21 today"),
    "functions_facade_to_remote": (5, "12 today"),
    # These two may not grow.
    "functions_step_to_scorer": (18, ""),
    "functions_step_to_estimator": (20, ""),
}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured(traced_step(tmp_path_factory.mktemp("trace")))


@pytest.mark.parametrize(
    ("figure", "most"),
    [
        pytest.param(figure, most, marks=[pytest.mark.xfail(strict=True, reason=reason)] if reason else [], id=figure)
        for figure, (most, reason) in BOUNDS.items()
    ],
)
def test_a_step_passes_few_functions(figures: dict[str, Any], figure: str, most: int) -> None:
    path = figures[figure.replace("functions_", "path_")]
    assert figures[figure] <= most, "\n".join(path)
