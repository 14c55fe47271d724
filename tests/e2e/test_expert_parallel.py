"""Experts that stay on their ranks on the real stack: engine and trainer agree, and runs continue and export."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from tests._tiers import slow_but
from tests.e2e._kept_workers import KeptWorkers
from tests.e2e._uninterrupted import differences
from tests.e2e.conftest import Run, train
from tests.families.models import FAMILIES

pytestmark = pytest.mark.usefixtures("ray_cluster")


def trained(name: str, engine: str, arithmetic: Path, out: Path, *overrides: str) -> Run:
    FAMILIES[name].write(out / "model")
    return train(
        arithmetic,
        out,
        f"rollout={engine}",
        f"model.path={out}/model",
        "actor.fsdp.expert_parallel=true",
        "ref.fsdp.expert_parallel=true",
        "actor.kl_loss_coef=0.01",
        "actor.optim.lr=1e-2",
        "cluster.workers_per_node=2",
        "trainer.total_training_steps=3",
        *overrides,
    )


@pytest.mark.parametrize(
    ("name", "engine"),
    slow_but(
        {"Qwen3-MoE vllm"},
        [
            (f"{name} {engine}", (name, engine))
            for name, engine in (("Qwen3-MoE", "vllm"), ("Mixtral", "vllm"), ("OLMoE", "vllm"), ("DeepSeek-V3", "hf"))
        ],
    ),
)
def test_the_engine_gets_every_expert_in_each_step(name: str, engine: str, arithmetic: Path, tmp_path: Path) -> None:
    run = trained(name, engine, arithmetic, tmp_path)
    assert len(run.metrics) == 3
    for metrics in run.metrics.values():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/grad_norm"] > 0
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    after = AutoModelForCausalLM.from_pretrained(run.folder / "model").state_dict()
    assert before.keys() == after.keys()
    experts = [weight for weight in before if weight.endswith((".gate_up_proj", ".down_proj")) and "experts" in weight]
    assert experts
    for weight in experts:
        has_moved = (after[weight] != before[weight]).flatten(1).any(1)
        assert has_moved.all(), f"some experts of {weight} stay as they were: {has_moved.tolist()}"


@pytest.mark.slow
def test_a_run_continues_bit_for_bit(arithmetic: Path, tmp_path: Path, ray_cluster: KeptWorkers) -> None:
    options = ("trainer.save_freq=1",)
    whole = trained("Qwen3-MoE", "hf", arithmetic, tmp_path / "whole", *options)
    parts = tmp_path / "parts"
    trained("Qwen3-MoE", "hf", arithmetic, parts, *options, "trainer.total_training_steps=1")
    ray_cluster.end()  # a run is continued by processes that remember nothing
    resumed = trained("Qwen3-MoE", "hf", arithmetic, parts, *options)
    assert not differences(resumed.folder, whole.folder)
