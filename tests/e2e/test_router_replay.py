"""Router replay on the real stack: the trainer's passes use the experts that the engine chose."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

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
        "rollout.router_replay=true",
        "actor.mini_batch_size=4",  # two updates of a step: the routers of the second one have moved
        "actor.optim.lr=1e-2",
        *overrides,
    )


@pytest.mark.parametrize(
    ("name", "engine"),
    slow_but(
        {"Qwen3-MoE vllm"},
        [
            (f"{name} {engine}", (name, engine))
            for name, engine in (
                ("Qwen3-MoE", "vllm"),
                ("Qwen3-MoE", "hf"),
                ("Mixtral", "vllm"),
                ("OLMoE", "vllm"),
                ("DeepSeek-V3", "hf"),
            )
        ],
    ),
)
def test_the_trainer_uses_the_experts_of_the_engine(name: str, engine: str, arithmetic: Path, tmp_path: Path) -> None:
    run = trained(name, engine, arithmetic, tmp_path)
    for metrics in run.metrics.values():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/grad_norm"] > 0
    assert run.metrics[2]["rollout/routing_diff_frac"] > 0, "the second update of a step has other routers"


@pytest.mark.slow
def test_biases_reach_the_engine_and_a_run_continues_bit_for_bit(
    arithmetic: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    options = ("actor.router_bias_rate=0.1", "trainer.save_freq=1", "trainer.total_training_steps=3")
    whole = trained("DeepSeek-V3", "hf", arithmetic, tmp_path / "whole", *options)
    for metrics in whole.metrics.values():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4, "the engine has the biases too"
        assert metrics["moe/max_load"] >= 1
    model = safe_open(whole.folder / "model/model.safetensors", "np")
    [bias] = [model.get_tensor(name) for name in [*model.keys()] if name.endswith("e_score_correction_bias")]
    assert abs(bias).max() > 0.05, "they are exported"
    parts = tmp_path / "parts"
    trained("DeepSeek-V3", "hf", arithmetic, parts, *options[:2], "trainer.total_training_steps=1")
    ray_cluster.end()  # a run is continued by processes that remember nothing
    resumed = trained("DeepSeek-V3", "hf", arithmetic, parts, *options)
    assert not differences(resumed.folder, whole.folder)
