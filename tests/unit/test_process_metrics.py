"""Reports of a run's processes, requested once a step and written when the driver waits."""

from __future__ import annotations

import json
from pathlib import Path

from verl_like.context import current, replaced
from verl_like.controller.wait import Meanwhile
from verl_like.training.process_metrics import ProcessMetrics


def steps(folder: Path) -> list[int]:
    path = folder / "ledger.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


def test_the_ledger_gets_a_step_in_the_next_wait_and_the_last_one_with_the_table(tmp_path: Path) -> None:
    with replaced(Meanwhile, Meanwhile()):
        reports = ProcessMetrics(tmp_path, [])
        for step, written in ((1, []), (2, [1])):
            reports.ask()
            reports.ask()
            assert len(current(Meanwhile).first) == step, "a second request before the answer is none"
            reports.take(step)
            assert steps(tmp_path) == written
        reports.write_table()
        assert steps(tmp_path) == [1, 2] and (tmp_path / "ledger.md").exists()
