"""A rank reads the rows that it keeps: the same model as transformers loads, and nothing of what others have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.unit._fsdp_ranks import FAMILIES, run_ranks, tiny_model, write_families
from verl_like.backends.fsdp.loading import load_weights, skeleton
from verl_like.backends.fsdp.models import load_config
from verl_like.config.schema import ModelConfig

NUM_RANKS = 3  # most numbers of rows are no multiple of it


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, dict]]]:
    work = write_families(tmp_path_factory.mktemp("families"))
    return work, [results["families"] for results in run_ranks(["families"], world_size=NUM_RANKS, work=work)]


@pytest.mark.processes
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_all_ranks_are_the_model_that_transformers_loads(
    loaded: tuple[Path, list[dict[str, dict]]], family: str
) -> None:
    work, ranks = loaded
    expected = AutoModelForCausalLM.from_pretrained(work / family, dtype=torch.float32)
    whole, buffers = expected.state_dict(), dict(expected.named_buffers())
    assert buffers
    for rank in (found[family] for found in ranks):
        assert rank["buffers"].keys() == buffers.keys()
        assert all(torch.equal(rank["buffers"][name], buffer) for name, buffer in buffers.items())
    state = ranks[0][family]["state"]
    assert state.keys() == whole.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in whole.items())


@pytest.mark.processes
@pytest.mark.parametrize("family", FAMILIES)
def test_a_rank_holds_its_rows_and_not_the_file(loaded: tuple[Path, list[dict[str, dict]]], family: str) -> None:
    work, ranks = loaded
    model = AutoModelForCausalLM.from_pretrained(work / family, dtype=torch.float32)
    # Rows are dealt in equal parts, the last ones getting less; a tied weight is there once.
    most = sum(-(-p.shape[0] // NUM_RANKS) * p[0].numel() * p.itemsize for p in model.parameters())
    assert all(0 < found[family]["bytes"] <= most for found in ranks)


def load(path: Path, **changes: object) -> torch.nn.Module:
    config = load_config(str(path), model=ModelConfig(path=str(path), **changes))
    backbone = skeleton(AutoModelForCausalLM, config, attention="sdpa", dtype=torch.float32, trust_remote_code=False)
    load_weights(backbone, str(path), device=torch.device("cpu"), dtype=torch.float32)
    return backbone


def test_a_skeleton_has_no_memory_for_its_weights(tmp_path: Path) -> None:
    tiny_model("qwen3").save_pretrained(tmp_path)
    config = load_config(str(tmp_path), model=ModelConfig(path=str(tmp_path)))
    model = skeleton(AutoModelForCausalLM, config, attention="sdpa", dtype=torch.float32, trust_remote_code=False)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_weights_stay_when_their_files_are_written_again(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    copies = {name: tensor.clone() for name, tensor in expected.items()}
    model = load(tmp_path)
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.seek(-1000, 2)
        file.write(bytes(1000))
    assert all(torch.equal(tensor, copies[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_a_file_that_was_not_written_completely_is_refused(tmp_path: Path, keep: float) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * keep)])
    with pytest.raises(ValueError, match=r"cannot be read.*Check that they were written completely"):
        load(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(7)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"model\.norm\.weight is \(7,\), expected \(32,\).*model\.override_config"):
        load(tmp_path)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": quantised}))
    with pytest.raises(ValueError, match="are quantised, expected plain floating point"):
        load(tmp_path)
