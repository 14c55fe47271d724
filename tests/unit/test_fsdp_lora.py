"""LoRA: adapters learn the same in every setting, other layers stay unchanged, and peft reads the written files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from torch.distributed.checkpoint.filesystem import FileSystemReader
from transformers import AutoConfig, AutoModelForCausalLM

from tests.families.models import FAMILIES
from tests.unit._fsdp_ranks import SCENARIOS, build_engine, build_learner, make_rows, run_ranks, write_models
from tests.unit._rank_processes import join_ranks, leave_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.backends.lora import adapters_of
from verl_like.config.schema import LoraConfig, ModelConfig


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("lora"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def alone(work: Path) -> dict[str, Any]:
    return SCENARIOS["lora"](work)


@pytest.fixture(scope="module")
def ranks(work: Path, alone: dict[str, Any]) -> list[dict[str, Any]]:
    """One rank, and two."""
    return [alone, *(results["lora"] for results in run_ranks(["lora"], world_size=2, work=work))]


@pytest.mark.processes
@pytest.mark.parametrize(
    "setting", ["plain", "replicas", "uneven", "no_rows_on_one_rank", "padded", "checkpointed", "layer_groups"]
)
def test_adapters_learn_the_same(ranks: list[dict[str, Any]], setting: str) -> None:
    for found in ranks:
        assert_same_run(found[setting], ranks[0]["plain"])


@pytest.mark.processes
def test_a_critic_has_its_own_adapters(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert_same_run(found["value"], ranks[0]["value"])
        assert_same_run(found["value_replicas"], ranks[0]["value"])


@pytest.mark.processes
@pytest.mark.parametrize("way", ["shards", "whole"])
def test_layers_stay_as_they_were_read_and_adapters_move_what_they_say(
    ranks: list[dict[str, Any]], work: Path, way: str
) -> None:
    original = AutoModelForCausalLM.from_pretrained(work / "qwen2").state_dict()
    for found in ranks:
        for name, tensor in found[way]["layers"].items():
            assert torch.equal(tensor, original[name]), name
        assert found[way]["layers"].keys() == original.keys()
        for log_probs in found[way]["as_read"]:
            np.testing.assert_array_equal(log_probs, found[way]["unadapted"])
        assert np.abs(found[way]["learned"] - found[way]["unadapted"]).max() > 1e-3


@pytest.mark.processes
@pytest.mark.parametrize("way", ["shards", "whole"])
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_peft_reads_the_adapter_and_transformers_the_merged_model(
    ranks: list[dict[str, Any]], work: Path, way: str, num_ranks: int
) -> None:
    folder = work / f"adapters-{way}-{num_ranks}"
    merged = AutoModelForCausalLM.from_pretrained(folder / "merged").eval()
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(work / "qwen2"), folder / "adapter").eval()
    ids = torch.arange(20)[None] % 64
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, adapted(ids).logits, atol=1e-5, rtol=0)
        with adapted.disable_adapter():
            assert (merged(ids).logits - adapted(ids).logits).abs().max() > 1e-3
    written = {file.name for file in (folder / "adapter").iterdir()}
    assert written == {"adapter_config.json", "adapter_model.safetensors"}


@pytest.mark.processes
def test_a_checkpoint_has_only_adapters_and_a_run_continues_from_it(ranks: list[dict[str, Any]], work: Path) -> None:
    learned_alone = ranks[0]["plain"]["metrics"][1]
    for num_ranks in (1, 2):
        for way in ("shards", "whole"):
            metadata = FileSystemReader(work / f"adapters-{way}-{num_ranks}" / "checkpoint").read_metadata()
            weights = [name for name in metadata.state_dict_metadata if name.startswith("model.")]
            assert weights
            assert all(".lora_A." in name or ".lora_B." in name for name in weights)
    for found in ranks:
        for name in ("goes_on", "goes_on_by_shards"):
            assert_same_run(found[name], {"metrics": [learned_alone], "weights": ranks[0]["plain"]["weights"]})


@pytest.mark.processes
@pytest.mark.parametrize("way", ["shards", "whole"])
def test_a_model_that_does_not_learn_reads_the_adapters_of_a_checkpoint(ranks: list[dict[str, Any]], way: str) -> None:
    for found in ranks:
        for name, weight in found[way]["saved"].items():
            assert torch.equal(weight, found[way]["read"][name]), name


def test_layers_that_cannot_have_adapters_are_refused(work: Path) -> None:
    for targets, reported in (
        (["no_proj"], r"model.lora.targets=\['no_proj'\] does not fit Qwen2ForCausalLM.*down_proj.*all-linear"),
        (["q_proj", "lm_head"], r"selects lm_head, which is no linear.*model.lora.targets=\[all-linear\]"),
        (["q_proj", "embed_tokens"], r"selects model.embed_tokens, which is no linear"),
    ):
        with pytest.raises(ValueError, match=reported):
            build_engine(work / "qwen2", model={"lora": LoraConfig(rank=4, targets=targets)})


@pytest.mark.parametrize("family", ["Qwen3-MoE", "Mixtral", "OLMoE", "DeepSeek-V3"])
def test_adapters_of_mixtures_are_on_attention(family: str, tmp_path: Path) -> None:
    FAMILIES[family].write(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    for lora in (LoraConfig(rank=4), LoraConfig(rank=4, targets=["q_proj", "all-linear"])):
        adapters = adapters_of(config, ModelConfig(path=str(tmp_path), lora=lora))
        names = set(adapters.shapes())
        assert names and all(".self_attn." in name for name in names)
        assert {name.rsplit(".", 3)[1] for name in names} >= {"q_proj", "o_proj"}
    if family != "Mixtral":  # whose experts' layers have other names
        named = LoraConfig(rank=4, targets=["q_proj", "gate_proj", "up_proj", "down_proj"])
        with (
            warnings.catch_warnings(action="ignore"),
            pytest.raises(ValueError, match=r"selects model\.layers.*these have no adapters\. Leave it out, or"),
        ):
            adapters_of(config, ModelConfig(path=str(tmp_path), lora=named))


def test_a_frozen_model_has_none(work: Path) -> None:
    engine = build_engine(work / "qwen2", is_frozen=True, model={"lora": LoraConfig(rank=4)})
    assert engine.module.adapters is None
    assert engine.forward_log_probs(make_rows(), temperature=1.0)["log_probs"].size


def test_a_checkpoint_of_other_weights_is_refused(alone: dict[str, Any], work: Path) -> None:
    whole = build_learner(work / "qwen2")
    with pytest.raises(
        ValueError, match=r"lacks 27 weights.*model.path and model.lora as they were when it was written"
    ):
        whole.load(work / "adapters-shards-1/checkpoint")
    whole.save(work / "checkpoint-of-weights")
    adapted = build_engine(work / "qwen2", model={"lora": LoraConfig(rank=4)})
    with pytest.raises(ValueError, match=r"lacks 28 weights.*lora_A"):
        adapted.load(work / "checkpoint-of-weights")
