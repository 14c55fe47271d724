"""Router replay on the real stack: the trainer's passes use the experts that the engine chose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests._tiers import slow_but
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
