"""Which teacher runs which rows, and when it is on the accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.unit._teacher_roles import remote, setup_of
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.teachers import TeachersRole


class Engine:
    """Scores each token by its id and its model's number, and records the calls."""

    def __init__(self, number: int, calls: list[str]) -> None:
        self.number, self.calls = number, calls

    def onload(self) -> None:
        self.calls.append(f"onload {self.number}")

    def offload(self) -> None:
        self.calls.append(f"offload {self.number}")

    def forward_log_probs(self, rows: DataProto, *, temperature: float) -> dict[str, Any]:
        self.calls.append(f"{len(rows)} rows by {self.number}")
        return {"log_probs": (100 * self.number + rows.ragged("response_ids").values).astype(np.float32)}


def scored(teachers: list[int], *, used: list[int]) -> tuple[list[list[float]], list[str]]:
    """Return the log-probs of rows with responses of 0, 1, 2, ... tokens, and the calls of engines after the build."""
    calls: list[str] = []
    made = iter(range(10))
    engine_of: Any = lambda path: Engine(next(made), calls)  # noqa: E731
    role = TeachersRole(setup_of({"math": "a", "code": "b", "algebra": "a"}), engine_of)
    assert calls == ["offload 0", "offload 1"], "each model leaves the accelerator before the next is built"
    calls.clear()
    responses = Ragged.from_rows([range(length) for length in range(len(teachers))], "int32")
    table = DataProto({"prompt_ids": responses, "response_ids": responses, "response_mask": responses})
    _, found = role.ref_log_probs(remote(table), np.array(teachers, np.int64), used=used)
    return [row.tolist() for row in found.ragged("ref_log_probs")], calls


def test_each_model_runs_its_own_rows_alone_and_results_keep_the_order_of_the_rows() -> None:
    """The third name shares the first one's model."""
    found, calls = scored([1, 0, 1, 2], used=[0, 1, 2])
    assert found == [[], [0.0], [100.0, 101.0], [0.0, 1.0, 2.0]]
    assert calls == ["onload 0", "2 rows by 0", "offload 0", "onload 1", "2 rows by 1", "offload 1"]


def test_a_rank_without_rows_of_a_teacher_takes_part_in_its_passes() -> None:
    found, calls = scored([0, 0], used=[0, 1])
    assert found == [[], [0.0]] and "0 rows by 1" in calls
    assert scored([], used=[1])[0] == []


def test_a_teacher_without_any_rows_stays_off_the_accelerator() -> None:
    assert scored([1, 1], used=[1])[1] == ["onload 1", "2 rows by 1", "offload 1"]
