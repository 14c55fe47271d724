"""Policies that read videos as frames on the real stack: small models of each family, with videos in every form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipes.colours.gallery import SHADES, SIDE, picture
from tests._tiers import slow_but
from tests.e2e.conftest import train
from tests.families.pictures import PICTURE_FAMILIES
from tests.unit._videos import encoded

pytestmark = pytest.mark.usefixtures("ray_cluster")

REWARD = """
def varied(data_source, solution_str, ground_truth, extra_info):
    assert "\\\\x89PNG" not in repr(extra_info)
    return sum(map(ord, solution_str)) % 7 / 7
"""


def clip(colours: list[str], container: str, codec: str) -> bytes:
    """Return a video with a frame of each colour."""
    shades = [np.full((SIDE, SIDE, 3), SHADES[colour], np.uint8) for colour in colours]
    return encoded(shades, codec, container)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of videos in several forms, a reward, and a model of each family."""
    folder = tmp_path_factory.mktemp("clips")
    numbers = np.random.default_rng(3)
    (folder / "red.png").write_bytes(picture("red", numbers))
    (folder / "blue.mp4").write_bytes(clip(["red", "green", "blue"] * 5, "mp4", "mpeg4"))
    (folder / "short.webm").write_bytes(clip(["green"], "webm", "libvpx-vp9"))
    (folder / "train.jsonl").write_text("".join(json.dumps({**row, "data_source": "x"}) + "\n" for row in rows()))
    (folder / "reward.py").write_text(REWARD)
    for name, family in PICTURE_FAMILIES.items():
        family.write(folder / name)
    return folder


def rows() -> list[dict[str, Any]]:
    question = {"type": "text", "text": "Which colour is this ?"}
    part = {"type": "video", "video": "blue.mp4", "nframes": 2}
    return [
        {"prompt": "Which colour is this ?", "videos": ["blue.mp4"], "answer": "red"},
        {"prompt": "Which <video> is this <image> ?", "videos": ["short.webm"], "images": ["red.png"], "answer": "red"},
        {"prompt": [{"role": "user", "content": [part, question]}], "answer": "blue"},
        {"prompt": "<video>this ?", "videos": [["red.png", "red.png"]], "answer": "red"},
        {"prompt": "Which colour is this ?", "answer": "red"},
        {"prompt": "Which <image> ?", "images": ["red.png"], "answer": "red"},
        {"prompt": "<video><video>this ?", "videos": ["blue.mp4", "short.webm"], "answer": "red"},
        {"prompt": [{"role": "user", "content": "this <video> ?"}], "videos": ["blue.mp4"], "answer": "blue"},
    ]


@pytest.mark.parametrize("name", slow_but({"Qwen2.5-VL"}, [(name, (name,)) for name in PICTURE_FAMILIES]))
def test_a_family_learns_from_videos_with_engine_and_trainer_in_agreement(
    name: str, clips: Path, tmp_path: Path
) -> None:
    found = train(
        clips,
        tmp_path,
        f"model.path={clips}/{name}",
        f"data.train_files=[{clips}/train.jsonl]",
        "data.apply_chat_template=true",
        "data.max_prompt_length=96",
        "data.video_frames=3",
        f"reward.function={clips}/reward.py:varied",
        "data.train_batch_size=8",
        "actor.mini_batch_size=4",
        "actor.kl_loss_coef=0.01",
        "trainer.total_training_steps=2",
        "trainer.num_samples_to_save=-1",
    )
    assert sorted(found.metrics) == [1, 2]
    for metrics in found.metrics.values():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/grad_norm"] > 0
    lines = [json.loads(line) for line in (found.folder / "samples/step_1.jsonl").open()]
    counts = {line["uid"]: line["prompt"].count("<|image_pad|>") for line in lines}
    assert counts == {f"train.jsonl:{row}": number for row, number in enumerate([3, 2, 2, 2, 0, 1, 4, 3])}
