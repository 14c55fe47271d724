"""Episodes that show pictures between turns, on the real stack: small models of each family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests._tiers import slow_but
from tests.e2e.conftest import Run
from tests.e2e.test_pictures import FAMILY, colours, trained
from tests.families.pictures import PICTURE_FAMILIES

__all__ = ["colours"]  # a fixture

pytestmark = pytest.mark.usefixtures("ray_cluster")

GALLERY = """
from io import BytesIO
from PIL import Image

SHADES = [(220, 40, 40), (40, 180, 60), (40, 70, 220)]


class Gallery:
    def reset(self, **row):
        self.turns = 0

    def step(self, text):
        self.turns += 1
        picture = Image.new("RGB", (56, 56), SHADES[len(text) % 3])
        if self.turns == 1:
            return picture, 0.0, False
        parts = [{"type": "image", "image": picture}, "Which colour ?", {"type": "image", "image": picture.rotate(90)}]
        return parts, sum(map(ord, text)) % 7 / 7, self.turns == 3
"""


@pytest.fixture(scope="module", params=slow_but({FAMILY}, [(name, (name,)) for name in PICTURE_FAMILIES]))
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def played(family: str, colours: Path, out: Path, *overrides: str) -> Run:
    (colours / "gallery.py").write_text(GALLERY)
    return trained(
        family,
        colours,
        out,
        "reward.function=''",
        "data.max_prompt_length=48",
        "data.max_response_length=100",
        f"environment.path={colours}/gallery.py:Gallery",
        "environment.max_turns=3",
        "environment.max_turn_tokens=3",
        *overrides,
    )


@pytest.fixture(scope="module")
def run(family: str, colours: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(family, colours, tmp_path_factory.mktemp("run"), "trainer.total_training_steps=2")


def samples(run: Run, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / f"samples/step_{step}.jsonl").read_text().splitlines() if line]


def test_a_family_learns_from_pictures_between_turns(run: Run) -> None:
    assert sorted(run.metrics) == [1, 2]
    for metrics in run.metrics.values():
        assert metrics["reward/num_failed"] == 0
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/grad_norm"] > 0
