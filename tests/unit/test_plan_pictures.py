"""The pictures that a plan assumes, and what a plan of a model of pictures consists of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.families.pictures import PICTURE_FAMILIES
from verl_like.config.schema import Config, ModelConfig
from verl_like.plan import repeated
from verl_like.plan.devices import named
from verl_like.plan.layers import EndBytes
from verl_like.plan.pictures import PROCESSOR_FILE, PictureSizes
from verl_like.plan.shape import ModelShape, model_shape
from verl_like.plan.stages import Location, Role, roles_of
from verl_like.plan.step import planned_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PICTURE_FAMILIES["Qwen2.5-VL"].write(tmp_path_factory.mktemp("model"))


def shape_of(folder: Path, *, freeze_vision: bool = False) -> ModelShape:
    return model_shape(str(folder), ModelConfig(path=str(folder), freeze_vision=freeze_vision))


def configuration(folder: Path) -> Config:
    config = Config()
    config.model.path = str(folder)
    config.data.max_prompt_length, config.data.max_response_length = 64, 32
    config.data.train_batch_size = config.actor.mini_batch_size = 8
    config.rollout.n = 2
    return config


def actor(folder: Path, shape: ModelShape, *, job: str = "train", checkpointing: str = "auto") -> Role:
    config = configuration(folder)
    config.model.gradient_checkpointing = checkpointing
    location = Location(device=named("H100"), ranks=8, ranks_per_node=8)
    (role, *_) = roles_of(planned_config(config, job), {"actor": shape, "ref": shape}, location, job=job)
    return role


def test_a_picture_is_as_large_as_prompt_options_and_processor_allow() -> None:
    sizes = PictureSizes(pixels_per_token=28**2, most_pixels=100 * 28**2)
    assert sizes.most_tokens(max_tokens=64, max_pixels=10**9) == 64
    assert sizes.most_tokens(max_tokens=512, max_pixels=10**9) == 100
    assert sizes.most_tokens(max_tokens=512, max_pixels=20 * 28**2) == 20
    assert replace(sizes, most_pixels=None).most_tokens(max_tokens=512, max_pixels=10**9) == 512
    fixed = PictureSizes(fixed_tokens=576)
    assert fixed.most_tokens(max_tokens=1024, max_pixels=10) == 576
    assert fixed.most_tokens(max_tokens=575, max_pixels=10**9) == 0


def test_sizes_are_read_from_config_and_processor(folder: Path) -> None:
    known = json.loads((folder / PROCESSOR_FILE).read_text())
    sizes = shape_of(folder).pictures
    assert sizes == PictureSizes(pixels_per_token=28**2, most_pixels=known["size"]["longest_edge"])


def test_each_prompt_of_a_pass_has_a_picture_if_the_job_reads_pictures(folder: Path) -> None:
    shape = shape_of(folder)
    run = actor(folder, shape).run
    assert (run.pictures, run.picture_tokens) == (1, 64), "two rows of a prompt share its picture"
    assert actor(folder, shape, job="sft").run.pictures == 0


def test_blocks_of_the_vision_part_are_recomputed_before_the_layers(folder: Path) -> None:
    shape = shape_of(folder)
    assert len(shape.vision_parts) == 2

    def recomputed(number: int) -> tuple[int, int]:
        run = actor(folder, shape, checkpointing=str(number)).run
        return run.recomputed_vision, run.recomputed

    assert [recomputed(number) for number in (0, 1, 3, 9)] == [(0, 0), (1, 0), (2, 1), (2, shape.num_layers)]


def test_a_frozen_vision_part_has_no_gradients_and_moments(folder: Path) -> None:
    learning, frozen = (actor(folder, shape_of(folder, freeze_vision=freeze)).sharded for freeze in (False, True))
    of_vision = frozen.shape.num_fixed_parameters
    assert of_vision > sum(frozen.shape.vision_parts)
    assert frozen.weights == learning.weights, "it has float32 masters all the same"
    assert learning.num_learning - frozen.num_learning == of_vision
    assert frozen.optimizer < learning.optimizer


@pytest.mark.parametrize("family", PICTURE_FAMILIES)
def test_three_blocks_stand_for_all(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = PICTURE_FAMILIES[family].write(tmp_path)
    known = json.loads((path / "config.json").read_text())
    vision = known["vision_config"]
    vision["depth" if "depth" in vision else "num_hidden_layers"] = 7
    (path / "config.json").write_text(json.dumps(known))
    found: list[EndBytes] = []
    for count in (repeated.NUM_RUN, 99):
        monkeypatch.setattr(repeated, "NUM_RUN", count)
        role = actor(path, shape_of(path), checkpointing="0")
        assert role.sharded.shape.counted is not None
        found.append(role.sharded.shape.counted.ends(role.sharded._kind(role.run)))
    few, every = found
    assert few.during == pytest.approx(every.during, rel=0.02)
    assert few.returning == pytest.approx(every.returning, rel=0.02)
    assert few.backward == pytest.approx(every.backward, rel=0.02)
