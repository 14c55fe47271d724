"""How many functions of the project a step passes, by a trace of one real step on two workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.trace_step import measured, traced_step

# Figure of tests/tools/trace_step.py -> the most functions.
BOUNDS = {
    "functions_step_to_loss": 12,
    "functions_step_to_submit": 14,
    "functions_facade_to_remote": 5,
    "functions_step_to_scorer": 13,
    "functions_step_to_estimator": 12,
}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured(traced_step(tmp_path_factory.mktemp("trace")))


@pytest.mark.nightly
@pytest.mark.parametrize(("figure", "most"), BOUNDS.items(), ids=BOUNDS)
def test_a_step_passes_few_functions(figures: dict[str, Any], figure: str, most: int) -> None:
    path = figures[figure.replace("functions_", "path_")]
    assert figures[figure] <= most, "\n".join(path)
