"""Adapters on the real stack: they learn the recipe, the reference is the actor, and engines take them either way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from recipes.arithmetic.model import write_model
from recipes.arithmetic.prepare import write_all
from tests.e2e.conftest import ROOT, Run, train
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.training import jobs as run
from verl_like.training.row_jobs import train_on_rows

pytestmark = pytest.mark.usefixtures("ray_cluster")

RECIPE = ROOT / "recipes/arithmetic"
RANK = 8
LORA = (f"model.lora.rank={RANK}", "actor.optim.lr=1e-2", "actor.kl_loss_coef=0.01", "trainer.save_freq=1")


@pytest.fixture(scope="module")
def merged(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Run:
    return train(arithmetic, tmp_path_factory.mktemp("merged"), *LORA)


@pytest.fixture(scope="module")
def adapted(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Run:
    return train(arithmetic, tmp_path_factory.mktemp("adapted"), *LORA, "rollout.lora=adapter")


def test_the_reference_is_the_model_that_the_actor_began_as(merged: Run, adapted: Run) -> None:
    for found in (merged, adapted):
        assert found.metrics[1]["actor/kl_loss"] == pytest.approx(0, abs=1e-9)
        assert found.metrics[2]["actor/kl_loss"] > 1e-6


def test_engines_take_adapters_merged_or_separate_from_their_weights(
    merged: Run, adapted: Run, arithmetic: Path
) -> None:
    weights = load_file(arithmetic / "model/model.safetensors")
    for found in (merged, adapted):
        for metrics in found.metrics.values():
            assert metrics["rollout/log_prob_diff_max"] < 1e-4
    assert merged.metrics[1]["sync/bytes"] >= sum(tensor.nbytes for tensor in weights.values())
    assert 0 < adapted.metrics[1]["sync/bytes"] < merged.metrics[1]["sync/bytes"] / 2


def test_a_run_writes_the_merged_model_and_exports_the_adapter_alone(
    merged: Run, arithmetic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(merged.folder), "--adapter"]) == 0
    adapter = Path(capsys.readouterr().out.splitlines()[-1])
    assert adapter == merged.folder / "export/step_2-adapter"
    whole = AutoModelForCausalLM.from_pretrained(merged.folder / "model")
    own = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(arithmetic / "model"), adapter)
    ids = torch.arange(10)[None]
    with torch.no_grad():
        torch.testing.assert_close(own(ids).logits, whole(ids).logits, atol=1e-5, rtol=0)
    assert_nothing_but_the_adapter_moved(arithmetic / "model", merged.folder / "model", adapter)


def assert_nothing_but_the_adapter_moved(base: Path, merged: Path, adapter: Path) -> None:
    """Check that every weight of the merged model equals the base's plus the adapter's product, bit for bit."""
    before, after = (load_file(folder / "model.safetensors") for folder in (base, merged))
    parts = load_file(adapter / "adapter_model.safetensors")
    scale = json.loads((adapter / "adapter_config.json").read_text())["lora_alpha"] / RANK
    num_moved = 0
    for name, tensor in after.items():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{module}.lora_A.weight" in parts:
            change = parts[f"{module}.lora_B.weight"] @ parts[f"{module}.lora_A.weight"]
            assert change.any(), name
            num_moved += 1
            assert torch.equal(tensor, before[name].add(change, alpha=scale)), name
        else:
            assert torch.equal(tensor, before[name]), name
    assert num_moved * 2 == len(parts)


@pytest.mark.slow
def test_a_run_continues_from_its_adapter(merged: Run, arithmetic: Path, tmp_path: Path) -> None:
    step = merged.folder / "checkpoints/step_1"
    again = train(arithmetic, tmp_path, *LORA, f"trainer.resume={step}")
    found, expected = (load_file(each.folder / "model/model.safetensors") for each in (again, merged))
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_rank_eight_learns_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_all(tmp_path / "data", 0)
    write_model(tmp_path / "init", 0)
    sft = compose(str(RECIPE / "sft.yaml"), [f"trainer.output_dir={tmp_path}", *paths(tmp_path, model="init")])
    train_on_rows(sft.config, sft.yaml(), job="sft")
    learning = compose(
        str(RECIPE / "grpo.yaml"),
        [
            *paths(tmp_path, model="warmstart/model"),
            f"data.val_files=[{tmp_path}/data/val.parquet]",
            f"trainer.output_dir={tmp_path}",
            f"model.lora.rank={RANK}",
            "actor.optim.lr=5e-3",
            "actor.mini_batch_size=16",
            "trainer.experiment_name=lora",
        ],
    )
    progress = run.train(learning.config, learning.yaml())
    assert progress.last_val is not None and progress.last_val >= 0.8
    assert main(["export", str(tmp_path / "lora"), "--adapter"]) == 0
    adapter = Path(capsys.readouterr().out.splitlines()[-1])
    assert_nothing_but_the_adapter_moved(tmp_path / "warmstart/model", tmp_path / "lora/model", adapter)


def paths(folder: Path, *, model: str) -> list[str]:
    rows = "sft" if model == "init" else "train"
    return [f"data.train_files=[{folder}/data/{rows}.parquet]", f"model.path={folder}/{model}"]
