"""Find the first value in which two snapshots of a step differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from verl_like.protocol import COLUMNS, Array
from verl_like.runs.snapshot_files import read_metrics, recorded_rows
from verl_like.telemetry.metrics import repeats

STAGES = (
    "prompts",
    "rollout",
    "old_log_probs",
    "ref_log_probs",
    "values",
    "reward",
    "advantages",
)  # in the order of a step
# Facts of rows that a replay reproduces, and the stages that produce them.
FACTS = {
    "sample": "rollout",
    "finish_reason": "rollout",
    "weight_version_min": "rollout",
    "weight_version_max": "rollout",
    "score": "reward",
    "reward_status": "reward",
    "advantage": "advantages",
    "has_advantage": "advantages",
}
_PRODUCERS = {**{name: spec.producer for name, spec in COLUMNS.items()}, **FACTS}
COMPARED = sorted(_PRODUCERS.items(), key=lambda item: STAGES.index(item[1]))  # (name, stage)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two snapshots of one step.

    Args:
        difference: the first value that differs, in words; None if all are equal.
        num_rows: number of rows compared.
        num_columns: number of columns compared.
        num_metrics: number of metrics compared.
    """

    difference: str | None
    num_rows: int = 0
    num_columns: int = 0
    num_metrics: int = 0


def compare(recorded: Path | None, replayed: Path, metrics: Mapping[str, float]) -> Comparison:
    """Compare a replayed step's snapshot with the recorded one, stage by stage in the order of a step.

    Args:
        recorded: the step's snapshot; None if none was kept.
        metrics: metrics that the run logged for the step; the snapshot's own take precedence.
    """
    rows = _rows(recorded) if recorded is not None else {}
    logged = (read_metrics(recorded) if recorded is not None else {}) or metrics
    logged = {name: value for name, value in logged.items() if repeats(name)}
    differences = chain(_row_differences(rows, _rows(replayed)), _metric_differences(logged, read_metrics(replayed)))
    return Comparison(
        next(differences, None),
        num_rows=max(map(len, rows.values()), default=0),
        num_columns=sum(name in rows for name, _ in COMPARED),
        num_metrics=len(logged),
    )


def _rows(snapshot: Path) -> dict[str, list[Any]]:
    """Return each column as a list of rows."""
    found: dict[str, list[Any]] = {}
    for _, columns in recorded_rows(snapshot):
        for name, column in columns.items():
            found.setdefault(name, []).extend(column)
    return found


def _row_differences(recorded: dict[str, list[Any]], replayed: dict[str, list[Any]]) -> Iterator[str]:
    if not recorded:
        return
    for name, stage in COMPARED:
        if name not in recorded:
            continue
        before, after = recorded[name], replayed.get(name, [])
        if len(before) != len(after):
            yield f"the stage {stage}: {len(before)} rows recorded, {len(after)} replayed"
            return
        differing = [row for row, (a, b) in enumerate(zip(before, after, strict=True)) if not _same(a, b)]
        if differing:
            row = differing[0]
            of = f"row {row} (prompt {recorded['uid'][row]}, sample {recorded['sample'][row]})"
            how = _first(before[row], after[row])
            yield f"the stage {stage}: {name} of {of}{how}; {len(differing)} of {len(before)} rows differ"


def _same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _first(a: Any, b: Any) -> str:
    """Describe the first difference of two values."""
    if np.ndim(a) == 0:
        return f": {a} recorded, {b} replayed"
    if len(a) != len(b):
        return f": {len(a)} tokens recorded, {len(b)} replayed, {_first_token(a, b)}"
    return f", {_first_token(a, b)}"


def _first_token(a: Array, b: Array) -> str:
    common = min(len(a), len(b))
    differing = [token for token in range(common) if not _same(a[token], b[token])]
    if not differing:
        return f"equal up to token {common}"
    return f"token {differing[0]}: {a[differing[0]]} recorded, {b[differing[0]]} replayed"


def _metric_differences(recorded: Mapping[str, float], replayed: Mapping[str, float]) -> Iterator[str]:
    """Yield differing metrics, in the order in which the step recorded them."""
    for name, value in recorded.items():
        other = replayed.get(name)
        if other is None or not (value == other or (math.isnan(value) and math.isnan(other))):
            yield f"its metrics: {name} is {value} recorded, {other} replayed"
