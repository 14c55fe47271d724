"""Loading models: what is refused, what the message says, and what a config override does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.unit._fsdp_ranks import tiny_model
from verl_like.backends.fsdp.loading import load_weights
from verl_like.backends.fsdp.models import PolicyModel, policy_skeleton, value_skeleton
from verl_like.config.schema import ModelConfig
from verl_like.ops.log_probs import TokenStatsFunction


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "qwen2"
    tiny_model("qwen2").save_pretrained(folder)
    return folder


def load(path: str | Path, **fields: object) -> PolicyModel:
    token_stats = TokenStatsFunction(budget_mib=1)
    model = policy_skeleton(
        str(path), model=ModelConfig(**fields), kernel="sdpa", dtype=torch.float32, token_stats=token_stats
    )
    load_weights(model.backbone, str(path), device=torch.device("cpu"), dtype=torch.float32)
    return model


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", r"model\.path is empty.*Set model\.path=PATH"),
        ("/nowhere/at/all", r"'/nowhere/at/all' does not exist.*Check model\.path"),
        ("./nowhere", r"'\./nowhere' does not exist"),
    ],
)
def test_a_missing_model_says_what_was_found_and_what_to_do(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no config\.json"):
        load(tmp_path)


def test_a_folder_without_weights_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.copy(path / "config.json", tmp_path)
    with pytest.raises(ValueError, match="no weights in safetensors files"):
        load(tmp_path)


def test_missing_weights_are_refused_instead_of_made_up(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "broken")
    weights = load_file(path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lack 1 tensors.*layers\.1\.mlp\.up_proj"):
        load(tmp_path / "broken")


def test_override_config_replaces_fields_and_refuses_unknown_ones(path: Path) -> None:
    assert load(path, override_config={"rms_norm_eps": 0.25}).backbone.config.rms_norm_eps == 0.25
    with pytest.raises(ValueError, match="'rms_norm_epsilon'"):
        load(path, override_config={"rms_norm_epsilon": 0.25})


def test_layers_that_mix_packed_rows_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=r"chunked_attention.*model\.remove_padding=false"):
        load(path, override_config={"layer_types": ["chunked_attention", "full_attention"]})


def test_dropout_never_runs(path: Path) -> None:
    assert not any(module.training for module in load(path, override_config={"attention_dropout": 0.5}).modules())


def test_a_fresh_value_head_is_zero(path: Path) -> None:
    value_model = value_skeleton(str(path), model=ModelConfig(), kernel="sdpa", dtype=torch.float32)
    assert all(not parameter.any() for parameter in value_model.value_head.parameters())
