"""Loads of experts, biases that are moved against them, and routers that do not learn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.unit._fsdp_ranks import PolicyLoss, build_learner, make_rows, weights_of
from tests.unit._fsdp_router_ranks import (
    NUM_EXPERTS,
    NUM_LAYERS,
    TOP_K,
    rebalanced,
    routed_rows,
    write_biased,
    write_mixture,
)
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from verl_like.protocol import EXPERTS, DataProto, Ragged


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixture(tmp_path_factory.mktemp("mixture"))


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_biased(tmp_path_factory.mktemp("biased"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 25},
        {"max_tokens": 10_000},
        {"max_tokens": 25, "model": {"share_prompts": False}},
        {"max_tokens": 25, "model": {"remove_padding": False}},
        {"max_tokens": 25, "model": {"gradient_checkpointing": "true"}},
    ],
    ids=str,
)
def test_loads_count_the_experts_that_predict_response_tokens(path: Path, settings: dict[str, Any]) -> None:
    rows = routed_rows()
    loads = np.zeros((NUM_LAYERS, NUM_EXPERTS))
    for prompt, response, experts in zip(
        *(rows.ragged(name) for name in ("prompt_ids", "response_ids", EXPERTS)), strict=True
    ):
        chosen = experts.reshape(-1, NUM_LAYERS, TOP_K)[len(prompt) - 1 :]
        assert len(chosen) == len(response)
        for layer in range(NUM_LAYERS):
            loads[layer] += np.bincount(chosen[:, layer].reshape(-1), minlength=NUM_EXPERTS)
    metrics = build_learner(path, router_replay=True, **settings).update(rows, PolicyLoss())
    expected = loads.max(1) / loads.mean(1)
    assert [metrics[f"moe/max_load/{layer}"] for layer in range(NUM_LAYERS)] == pytest.approx(expected)
    assert metrics["moe/max_load"] == pytest.approx(expected.max()) and metrics["moe/unused_frac"] == 0


def test_biases_move_by_the_rate_towards_the_mean_load(biased: Path) -> None:
    before = AutoModelForCausalLM.from_pretrained(biased).state_dict()
    [name] = [name for name in before if name.endswith("e_score_correction_bias")]
    still, moved = rebalanced(biased, 0.0), rebalanced(biased, 0.5)
    assert torch.equal(still["bias"], before[name])
    change = moved["bias"] - before[name]
    assert set(change.tolist()) <= {-0.5, 0.0, 0.5} and len(set(change.tolist())) > 1
    assert moved["loads"] == still["loads"], "the biases count from the next update on"


def test_an_update_that_is_skipped_moves_no_bias(biased: Path) -> None:
    rows = make_rows()
    advantages = rows.ragged("advantages")
    broken = DataProto(
        {**rows.columns, "advantages": Ragged(advantages.values * np.float32(np.nan), advantages.offsets)}
    )
    assert torch.equal(rebalanced(biased, 0.5, broken)["bias"], rebalanced(biased, 0.0)["bias"])


def test_a_model_whose_routers_have_no_bias_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=r"Qwen3MoeForCausalLM has no routers that choose with a bias"):
        build_learner(path, router_bias_rate=0.1)


@pytest.mark.processes
def test_two_ranks_move_the_biases_as_one_does(biased: Path) -> None:
    alone = rebalanced(biased, 0.5)
    for found in on_ranks(rebalanced, biased, 0.5, world_size=2):
        assert found["loads"] == pytest.approx(alone["loads"])
        assert torch.equal(found["bias"], alone["bias"])


def test_a_frozen_router_stays_and_its_experts_learn(path: Path) -> None:
    before = AutoModelForCausalLM.from_pretrained(path).state_dict()
    learner = build_learner(path, freeze_router=True)
    learner.update(make_rows(), PolicyLoss())
    after = weights_of(learner.engine)
    routers = [name for name in before if name.endswith(".gate.weight")]
    assert len(routers) == NUM_LAYERS and all(torch.equal(after[name], before[name]) for name in routers)
    assert not torch.equal(
        after["model.layers.0.mlp.experts.down_proj"], before["model.layers.0.mlp.experts.down_proj"]
    )
