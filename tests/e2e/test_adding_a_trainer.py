"""The trainer that docs/adding_a_trainer.md prints trains on the real stack, and continues like any other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests._documented import files
from tests.e2e.conftest import ROOT, base_overrides
from verl_like.scripting import Trained, config_of, train

pytestmark = pytest.mark.usefixtures("ray_cluster")

NAME = "my_trainer"
MAX_LINES = 60


@pytest.fixture
def page() -> Iterator[ModuleType]:
    """Import the page's file."""
    module = ModuleType(NAME)
    sys.modules[NAME] = module
    exec(compile(files(ROOT)[f"{NAME}.py"], f"{NAME}.py", "exec"), vars(module))
    yield module
    del sys.modules[NAME]


def trained(page: ModuleType, data: Path, out: Path, *overrides: str) -> Trained:
    settings = ["rollout=hf", "trainer.save_freq=1", f"trainer.output_dir={out}", *overrides]
    config = config_of(None, *base_overrides(data, out), "data.val_files=[]", *settings)
    return train(config, trainer=page.AboveMeanTrainer)


def test_the_pages_trainer_learns_from_the_responses_above_the_mean_and_continues(
    page: ModuleType, arithmetic: Path, tmp_path: Path
) -> None:
    whole = trained(page, arithmetic, tmp_path / "whole")
    rows = [json.loads(line) for line in (whole.folder / "samples/step_1.jsonl").read_text().splitlines()]
    scores = {row["score"] for row in rows}
    assert whole.step == 2 and "time/old_log_probs_s" not in whole.metrics.column_names
    assert min(scores) >= -6 * page.COST and min(scores) < 0, "a response without a 7 costs its tokens"
    for step in whole.metrics.to_pylist():
        assert step["actor/grad_norm"] > 0 and step["prompts/trained"] == 8 * step["step"]
        assert 0 < step["tokens/update_actor"] < step["perf/tokens"], "rows below the mean are left out"
    trained(page, arithmetic, tmp_path / "parts", "trainer.total_training_steps=1")
    again = trained(page, arithmetic, tmp_path / "parts")
    assert again.metrics.column("actor/loss") == whole.metrics.column("actor/loss")


def test_the_pages_trainer_refuses_what_it_leaves_out(page: ModuleType, arithmetic: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Set actor\.mini_batch_size=data\.train_batch_size\."):
        trained(page, arithmetic, tmp_path, "actor.mini_batch_size=4")


def test_the_page_prints_a_trainer_of_sixty_lines_at_most() -> None:
    assert len(files(ROOT)[f"{NAME}.py"].splitlines()) <= MAX_LINES
