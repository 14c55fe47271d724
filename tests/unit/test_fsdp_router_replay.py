"""Router replay in the trainer: its passes use the experts in the rows, whatever the layout and the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests._tiny_model import requests
from tests.unit._fsdp_ranks import PolicyLoss, build_engine, build_learner, make_rows
from tests.unit._fsdp_router_ranks import (
    NUM_LAYERS,
    OF_TWO,
    SETTINGS,
    TOP_K,
    routed_rows,
    two_rank_updates,
    updated,
    write_mixture,
)
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.backends.base import Finished, Sampling
from verl_like.backends.rollout import rollout_engine
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.ops.routers import Routers
from verl_like.protocol import EXPERTS, DataProto, Ragged


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixture(tmp_path_factory.mktemp("mixture"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def expected(path: Path) -> dict[str, Any]:
    return updated(path)


def reference(model: Any, rows: DataProto, temperature: float) -> tuple[Tensor, Tensor]:
    """Return [K] log-probs and entropies, one row at a time through transformers' model with given experts."""
    routers, log_probs, entropies = Routers(model), [], []
    columns = (rows.ragged(name) for name in ("prompt_ids", "response_ids", EXPERTS))
    for prompt, response, experts in zip(*columns, strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))
        routers.replay(torch.from_numpy(experts.astype(np.int64)).view(-1, NUM_LAYERS * TOP_K))
        of_row = (model(ids[None, :-1]).logits[0, len(prompt) - 1 :] / temperature).log_softmax(-1)
        log_probs.append(of_row.gather(-1, ids[len(prompt) :, None])[:, 0])
        entropies.append(-(of_row.exp() * of_row).sum(-1))
    return torch.cat(log_probs), torch.cat(entropies)


@pytest.mark.parametrize(
    ("model", "max_tokens"),
    [({}, 10_000), ({}, 25), ({"share_prompts": False}, 25), ({"remove_padding": False}, 25)],
    ids=str,
)
def test_log_probs_are_those_of_the_given_experts(path: Path, model: dict[str, Any], max_tokens: int) -> None:
    rows = routed_rows()
    engine = build_engine(path, is_frozen=True, max_tokens=max_tokens, model=model, router_replay=True)
    found = engine.forward_log_probs(rows, temperature=0.7)["log_probs"]
    with torch.no_grad():
        log_probs, _ = reference(AutoModelForCausalLM.from_pretrained(path), rows, 0.7)
    np.testing.assert_allclose(found, log_probs, atol=1e-5)
    own = engine.forward_log_probs(make_rows(), temperature=0.7)["log_probs"]
    assert np.abs(found - own).mean() > 0.1, "rows without experts let the routers choose"


def test_an_update_follows_the_gradient_of_the_given_experts(path: Path) -> None:
    rows = routed_rows()
    plain = AutoModelForCausalLM.from_pretrained(path)
    log_probs, entropies = reference(plain, rows, 0.8)
    mask, advantages = (torch.from_numpy(rows.ragged(name).values) for name in ("response_mask", "advantages"))
    loss = -((log_probs * advantages + 0.1 * entropies) * mask).sum() / mask.sum()
    loss.backward()
    norm = torch.cat([parameter.grad.flatten() for parameter in plain.parameters() if parameter.grad is not None])
    metrics = build_learner(path, max_tokens=30, router_replay=True).update(rows, PolicyLoss())
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["grad_norm"] == pytest.approx(norm.norm().item(), rel=1e-4)


@pytest.mark.parametrize("setting", SETTINGS)
def test_passes_layout_and_recomputation_change_no_update(path: Path, expected: dict[str, Any], setting: str) -> None:
    assert_same_run(updated(path, **SETTINGS[setting]), expected, atol=1e-5)


@pytest.fixture(scope="module")
def ranks(path: Path) -> list[dict[str, Any]]:
    return on_ranks(two_rank_updates, path, world_size=2)


@pytest.mark.processes
@pytest.mark.parametrize("setting", OF_TWO)
def test_two_ranks_learn_what_one_learns(ranks: list[dict[str, Any]], expected: dict[str, Any], setting: str) -> None:
    for found in ranks:
        assert_same_run(found[setting], expected, atol=1e-5)


def generated(path: Path, weights: dict[str, Tensor]) -> tuple[list[Finished], DataProto]:
    """Return responses of the plain engine with these weights, and their rows."""
    engine = rollout_engine(
        "hf",
        model_path=str(path),
        tokenizer_path="",
        model=ModelConfig(path=str(path)),
        rollout=RolloutConfig(router_replay=True),
        max_model_len=64,
        device="cpu",
        seed=1,
        run_id="unit",
    )
    engine.begin_sync(0)
    engine.load(weights.items())
    engine.finish_sync()
    asked = requests(6, sampling=Sampling(max_tokens=20, temperature=0.8, returns_experts=True))
    engine.submit(asked)
    done: dict[str, Finished] = {}
    while engine.has_unfinished():
        done |= {finished.request_id: finished for finished in engine.step()}
    found = [done[request.request_id] for request in asked]
    experts = [finished.experts for finished in found]
    columns = {
        "prompt_ids": Ragged.from_rows([request.prompt_ids for request in asked], "int32"),
        "response_ids": Ragged.from_rows([finished.response_ids for finished in found], "int32"),
        EXPERTS: Ragged.from_rows([each.reshape(-1) for each in experts if each is not None], "uint8"),
    }
    return found, DataProto(columns)


@pytest.mark.parametrize("is_perturbed", [False, True])
def test_the_trainer_uses_the_experts_of_a_perturbed_engine(path: Path, is_perturbed: bool) -> None:
    """An engine whose routers differ a little chooses other experts for some tokens, as rounding on GPUs does."""
    weights = AutoModelForCausalLM.from_pretrained(path).state_dict()
    if is_perturbed:
        torch.manual_seed(5)
        routers = {name: weight for name, weight in weights.items() if name.endswith(".gate.weight")}
        weights |= {name: weight + 0.02 * torch.randn_like(weight) for name, weight in routers.items()}
    finished, rows = generated(path, weights)
    of_engine = np.concatenate([each.log_probs for each in finished])
    trainer = build_engine(path, is_frozen=True, router_replay=True)
    replayed = np.abs(trainer.forward_log_probs(rows, temperature=0.8)["log_probs"] - of_engine)
    num_other, num_given = trainer.take_routing_difference()
    without = DataProto({name: column for name, column in rows.columns.items() if name != EXPERTS})
    own = np.abs(trainer.forward_log_probs(without, temperature=0.8)["log_probs"] - of_engine)
    if is_perturbed:
        assert 0 < num_other < num_given / 4
        assert replayed.max() < own.max() / 4, "what is left are the weights of the experts"
    else:
        assert num_other == 0 and replayed.max() < 1e-4
