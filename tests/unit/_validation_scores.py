"""The metrics of a validation, computed again from the file of its scores by somebody who has nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

Row = dict[str, Any]


def assert_scores_give(metrics: dict[str, float], path: Path, *, n: int) -> None:
    """Check that the ``val/...`` metrics are exactly those computed from the file; ``time/`` metrics are ignored."""
    found = metrics_of(path, n)
    assert found == pytest.approx({name: value for name, value in metrics.items() if name.startswith("val/")})


def metrics_of(path: Path, n: int) -> dict[str, float]:
    rows = pq.read_table(path).to_pylist()
    found = _of_rows("val/", rows, n)
    sources = {row["data_source"] for row in rows}
    for source in sources:
        own = [row for row in rows if row["data_source"] == source]
        if len(sources) > 1:
            found |= _of_rows(f"val/{source}/", own, n)
        marks = {name for row in own for name, _ in row["numbers"] if _is_mark(name)}
        for name in {name for row in own if row["score"] is not None for name, _ in row["numbers"]} - marks:
            scored = [row for row in own if row["score"] is not None and name in dict(row["numbers"])]
            found[f"val/{source}/{name}/mean@{n}"] = _mean_of_prompts(
                scored, lambda group, name=name: _mean([dict(row["numbers"])[name] for row in group])
            )
    return found


def _of_rows(prefix: str, rows: list[Row], n: int) -> dict[str, float]:
    scored = [row for row in rows if row["score"] is not None]
    marks = [[value for name, value in row["numbers"] if _is_mark(name)] for row in rows]
    found = {"num_failed": len(rows) - len(scored), "unreadable": sum(1 in mark for mark in marks)}
    if scored:
        found |= {
            f"mean@{n}": _mean_of_prompts(scored, lambda group: _mean([row["score"] for row in group])),
            f"pass@{n}": _mean_of_prompts(scored, lambda group: any(row["is_correct"] for row in group)),
            f"maj@{n}": _mean_of_prompts(scored, _winner_is_correct),
        }
    return {prefix + name: value for name, value in found.items()}


def _is_mark(name: str) -> bool:
    """Return whether a number marks a response that a grader could not read: it is counted, not averaged."""
    return name.rpartition(".")[2] == "unreadable"


def _winner_is_correct(group: list[Row]) -> bool:
    [(winner, _)] = Counter(row["answer"] for row in group).most_common(1)  # of equal counts the first met
    return next(bool(row["is_correct"]) for row in group if row["answer"] == winner)


def _mean_of_prompts(rows: list[Row], value: Callable[[list[Row]], float]) -> float:
    prompts = {(row["data_source"], row["uid"]) for row in rows}
    return _mean([value([row for row in rows if (row["data_source"], row["uid"]) == prompt]) for prompt in prompts])


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
