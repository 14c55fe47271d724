"""A run of a notebook: its reward, its rows and its metrics never touch a file of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.e2e._kept_workers import KeptWorkers
from tests.e2e.conftest import base_overrides
from verl_like.config.schema import Config
from verl_like.scripting import config_of, train

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_closure_scores_rows_in_memory_and_the_metrics_come_back_as_a_table(
    arithmetic: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    points = 3.0
    variables: dict[str, object] = {"__name__": "__main__", "points": points}
    exec("def score(solution_str, ground_truth):\n    return points * (ground_truth in '0123456789')\n", variables)
    left_to_python = ("data.train_files=", "data.val_files=", "reward.function=")
    overrides = [each for each in base_overrides(arithmetic, tmp_path) if not each.startswith(left_to_python)]

    def config(num_steps: int) -> Config:
        found = config_of(None, *overrides, f"trainer.total_training_steps={num_steps}", "rollout=hf")
        found.reward.function = variables["score"]  # type: ignore[assignment]
        found.data.train_files = [{"prompt": f"{a}+1=", "answer": str(a + 1)} for a in range(9)]  # type: ignore[misc]
        return found

    done = train(config(1))
    assert done.step == 1 and done.metrics.column("reward/score_mean").to_pylist() == [points]
    recorded = yaml.safe_load((done.folder / "config.yaml").read_text())
    assert recorded["reward"]["function"].startswith(f"{done.folder}/from_python/score-")
    again = train(config(2))
    assert again.folder == done.folder and again.metrics.column("step").to_pylist() == [1, 2], "the run continues"
