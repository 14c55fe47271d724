"""The table of docs/scale.md is what the plan says now."""

from __future__ import annotations

from pathlib import Path

from benchmarks.plan_table import table

PAGE = Path(__file__).parents[2] / "docs/scale.md"


def test_the_page_shows_the_table_of_the_plan() -> None:
    """Its column of host memory said 34 GiB where the plan said 119."""
    found = table("H100")
    lines = PAGE.read_text().splitlines()
    first = lines.index(found[0])
    assert lines[first : first + len(found)] == found, "run: python -m benchmarks.plan_table, and paste it"
