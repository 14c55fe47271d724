"""Two steps of GRPO with a small model of each family, in which trainer and engine must agree on every token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests._tiers import slow_but
from tests.e2e.conftest import train
from tests.families.models import FAMILIES
from tests.families.page import PAGE, page

pytestmark = pytest.mark.usefixtures("ray_cluster")
BY_DAY = {"Qwen2.5", "Qwen3", "Llama 3", "Qwen3-MoE", "Gemma 3"}


REWARD = """
def varied(data_source, solution_str, ground_truth, extra_info):
    return sum(map(ord, solution_str)) % 7 / 7
"""


@pytest.mark.parametrize("name", slow_but((), ((name, (name,)) for name in FAMILIES), nightly={*FAMILIES} - BY_DAY))
def test_a_family_learns_with_engine_and_trainer_in_agreement(name: str, arithmetic: Path, tmp_path: Path) -> None:
    family = FAMILIES[name]
    family.write(tmp_path / "model")
    (tmp_path / "reward.py").write_text(REWARD)
    run = train(
        arithmetic,
        tmp_path,
        f"model.path={tmp_path}/model",
        f"reward.function={tmp_path}/reward.py:varied",
        *family.overrides,
    )
    assert sorted(run.metrics) == [1, 2]
    for metrics in run.metrics.values():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/grad_norm"] > 0


def test_the_page_is_about_these_families() -> None:
    assert PAGE.read_text() == page(), "python -m tests.families.page > docs/models.md"
