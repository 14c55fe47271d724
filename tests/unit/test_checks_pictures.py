"""Rules on models that read pictures: what each refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_checks_algorithm import config
from verl_like.checks.families import PICTURE_FAMILIES
from verl_like.checks.gpus import Gpus
from verl_like.checks.pictures import PICTURE_RULES


def problems(**changes: object) -> list[str]:
    made = config(**changes)
    return [problem for rule in PICTURE_RULES for problem in rule(made, Gpus(0))]


def model(folder: Path, model_type: str) -> str:
    fields = {"model_type": model_type, **({"vision_config": {"depth": 2}} if model_type in PICTURE_FAMILIES else {})}
    (folder / "config.json").write_text(json.dumps(fields))
    return str(folder)


@pytest.mark.parametrize("family", PICTURE_FAMILIES)
def test_a_model_of_pictures_passes(tmp_path: Path, family: str) -> None:
    path = model(tmp_path, family)
    assert not problems(model__path=path)
    assert not problems(model__path=path, model__freeze_vision=True)
    assert not problems(model__path=path, environment__path="game.py:Game")
    assert not problems(model__path=path, environment__tools="tools.py")
    assert not problems(model__path="owner/unknown", model__freeze_vision=True), "the hub is asked later"
    assert not problems(model__path="", model__freeze_vision=True), "another rule refuses it"


def test_freezing_vision_needs_a_model_that_has_it(tmp_path: Path) -> None:
    path = model(tmp_path, "qwen3")
    assert not problems(model__path=path)
    assert problems(model__path=path, model__freeze_vision=True) == [
        f"model.freeze_vision is true, but {path} reads text only (model_type in its config.json is qwen3). "
        "Name a model of the types qwen2_5_vl, qwen3_vl, llava, or set model.freeze_vision=false."
    ]


REFUSED: dict[str, tuple[dict[str, object], str, str]] = {
    "hf": ({"rollout__backend": "hf"}, "rollout.backend=hf generates from text only.", "Set rollout.backend=vllm."),
    "critic": (
        {"algorithm__adv_estimator": "gae"},
        "a critic reads text only.",
        "Set an algorithm without one, e.g. algorithm=grpo (algorithm.adv_estimator is gae).",
    ),
    "shared-sequences": (
        {"actor__sequence_parallel_size": 2},
        "ranks that share a sequence cannot share its pictures.",
        "Set actor.sequence_parallel_size=1 and ref.sequence_parallel_size=1.",
    ),
    "shared-sequences-of-the-reference": (
        {"ref__sequence_parallel_size": 2},
        "ranks that share a sequence cannot share its pictures.",
        "Set actor.sequence_parallel_size=1 and ref.sequence_parallel_size=1.",
    ),
    "self-distillation": (
        {"algorithm__distill_teacher": "self", "algorithm__distill_coef": 1.0},
        "a teacher with a privileged context reads text only.",
        "Set algorithm.distill_teacher=ref.",
    ),
    "adapter": (
        {"model__lora__rank": 8, "rollout__lora": "adapter"},
        "rollout.lora=adapter is for text models.",
        "Set rollout.lora=merged.",
    ),
    "reference": (
        {"ref__path": "other"},
        "its reference must be the model itself.",
        "Leave ref.path and ref.teachers empty.",
    ),
    "teachers": (
        {"ref__teachers": {"sums": "other"}},
        "its reference must be the model itself.",
        "Leave ref.path and ref.teachers empty.",
    ),
}


def test_layers_of_models_of_pictures_are_not_compiled(tmp_path: Path) -> None:
    path = model(tmp_path, "llava")
    assert problems(model__path=path, actor__compile_layers="true") == [
        f"{path} is a vision-language model, whose layers are not compiled. Set actor.compile_layers=false."
    ]
    assert not problems(model__path=model(tmp_path, "qwen3"), actor__compile_layers="true")


@pytest.mark.parametrize(("changes", "reason", "remedy"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_read_pictures_is_refused_for_their_models_alone(
    tmp_path: Path, changes: dict[str, object], reason: str, remedy: str
) -> None:
    path = model(tmp_path, "qwen2_5_vl")
    assert problems(model__path=path, **changes) == [f"{path} is a vision-language model, but {reason} {remedy}"]
    assert not problems(model__path=model(tmp_path, "qwen3"), **changes)
