"""Loads of experts, biases that are moved against them, and routers that do not learn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from tests.unit._fsdp_ranks import PolicyLoss, build_learner, make_rows, weights_of
from tests.unit._fsdp_router_ranks import (
    NUM_EXPERTS,
    NUM_LAYERS,
    SETTINGS,
    TOP_K,
    balanced,
    rebalanced,
    routed_rows,
    write_biased,
    write_mixture,
)
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from tests.unit.test_fsdp_engine import assert_same_run
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


def own_imbalance(model: Any, rows: DataProto) -> torch.Tensor:
    """Return the sum over rows of the imbalance, and its mean over layers, by loops."""
    found = torch.zeros(())
    for prompt, response in zip(rows.ragged("prompt_ids"), rows.ragged("response_ids"), strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))[None, :-1]
        states: list[torch.Tensor] = []
        gates = [module for module in model.modules() if type(module).__name__ == "Qwen3MoeTopKRouter"]
        kept = partial(lambda into, gate, args: into.append(args[0].reshape(-1, args[0].shape[-1])), states)
        handles = [gate.register_forward_pre_hook(kept) for gate in gates]
        model(ids)
        for handle in handles:
            handle.remove()
        for gate, of_layer in zip(gates, states, strict=True):
            shares = (of_layer[len(prompt) - 1 :] @ gate.weight.T).softmax(-1)
            for expert in range(NUM_EXPERTS):
                load = (shares.topk(TOP_K).indices == expert).sum() * NUM_EXPERTS / TOP_K / len(shares)
                found = found + load * shares[:, expert].mean() / NUM_LAYERS
    return found


def test_the_balancing_loss_is_the_mean_over_responses_and_its_gradient_reaches_the_routers(path: Path) -> None:
    rows = make_rows()
    model = AutoModelForCausalLM.from_pretrained(path)
    num_sequences = int((rows.ragged("response_mask").count_nonzero() > 0).sum())
    expected = own_imbalance(model, rows) / num_sequences
    expected.backward()
    gates = [parameter.grad for name, parameter in model.named_parameters() if name.endswith(".gate.weight")]
    learner = build_learner(path, router_aux_loss_coef=100.0, max_tokens=25)
    with patch.object(learner, "_step", lambda: {"skipped_updates": 0.0}):
        metrics = learner.update(rows, PolicyLoss())
    assert metrics["moe/aux_loss"] == pytest.approx(100 * expected.item(), rel=1e-5)
    without = build_learner(path, max_tokens=25)
    with patch.object(without, "_step", lambda: {"skipped_updates": 0.0}):
        without.update(rows, PolicyLoss())
    for gate, own, other in zip(gates, gates_of(learner), gates_of(without), strict=True):
        assert gate is not None and gate.abs().max() > 1e-4
        torch.testing.assert_close(own - other, 100 * gate, atol=2e-4, rtol=1e-3)


def gates_of(learner: Any) -> list[torch.Tensor]:
    found = learner.engine.module.named_parameters()
    grads = [parameter.grad for name, parameter in found if name.endswith(".gate.weight")]
    return [grad.full_tensor() if isinstance(grad, DTensor) else grad for grad in grads]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_balancing_loss_does_not_depend_on_the_layout(path: Path, setting: str) -> None:
    assert_same_run(balanced(path, 0.1, **SETTINGS[setting]), balanced(path, 0.1, max_tokens=10_000), atol=1e-5)


@pytest.mark.processes
def test_two_ranks_balance_as_one_does(path: Path) -> None:
    for found in on_ranks(partial(balanced, max_tokens=25), path, 0.1, world_size=2):
        assert_same_run(found, balanced(path, 0.1, max_tokens=10_000), atol=1e-5)


def test_affinities_of_a_router_with_a_bias_are_those_without_it(biased: Path) -> None:
    metrics = balanced(biased, 1.0, max_tokens=25)["metrics"][0]
    [router] = [each for each in AutoModelForCausalLM.from_pretrained(biased).modules() if hasattr(each, "top_k")][:1]
    assert 1 < metrics["moe/aux_loss"] < router.num_experts / router.top_k


def test_the_loss_evens_the_loads(path: Path) -> None:
    """The first tokens of a response choose experts by chance; after some updates they choose all."""
    learner = build_learner(path, router_aux_loss_coef=10.0)
    losses = [learner.update(make_rows(), PolicyLoss())["moe/aux_loss"] for _ in range(12)]
    assert losses[-1] < losses[0] - 0.5


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
