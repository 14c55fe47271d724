"""A policy's log-probs and updates over the candidates of each token, whatever the layout of the rows."""

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
from tests.unit._fsdp_ranks import (
    PolicyLoss,
    build_engine,
    build_learner,
    make_rows,
    weights_of,
    with_candidates,
    write_models,
)
from tests.unit._rank_processes import join_ranks, leave_ranks
from verl_like.backends.base import Sampling
from verl_like.backends.rollout import rollout_engine
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.protocol import CANDIDATES, DataProto, Ragged


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("candidates"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


def reference(model: torch.nn.Module, rows: DataProto, temperature: float) -> tuple[Tensor, Tensor]:
    """Return [K] log-probs and entropies over the candidates, one row and token at a time through the plain model."""
    log_probs, entropies = [], []
    ids, counts = (rows.ragged(name) for name in CANDIDATES)
    for row, (prompt, response) in enumerate(zip(rows.ragged("prompt_ids"), rows.ragged("response_ids"), strict=True)):
        tokens = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))
        steps = model(tokens[None]).logits[0, len(prompt) - 1 : -1] / temperature
        sets = np.split(ids[row], np.cumsum(counts[row]))[:-1]
        for token, logits, kept in zip(response.tolist(), steps, sets, strict=True):
            allowed = kept.tolist() or list(range(len(logits)))
            steps_of = logits[allowed].log_softmax(-1)
            log_probs.append(steps_of[allowed.index(token)])
            entropies.append(-(steps_of.exp() * steps_of).sum())
    return torch.stack(log_probs), torch.stack(entropies)


@pytest.mark.parametrize(
    ("model", "max_tokens"),
    [({}, 10_000), ({}, 25), ({"share_prompts": False}, 25), ({"remove_padding": False}, 25)],
    ids=str,
)
def test_log_probs_are_over_the_candidates(work: Path, model: dict[str, Any], max_tokens: int) -> None:
    rows = with_candidates(make_rows(9))
    engine = build_engine(work / "qwen2", is_frozen=True, max_tokens=max_tokens, model=model, log_prob_chunk_mib=1)
    found = engine.forward_log_probs(rows, temperature=0.7, entropy=True)
    with torch.no_grad():
        plain = AutoModelForCausalLM.from_pretrained(work / "qwen2").double()
        log_probs, entropy = reference(plain, rows, 0.7)
    np.testing.assert_allclose(found["log_probs"], log_probs, atol=1e-5)
    np.testing.assert_allclose(found["entropy"], entropy, atol=1e-5)


def test_selected_and_concatenated_rows_keep_their_candidates(work: Path) -> None:
    rows = with_candidates(make_rows(9))
    engine = build_engine(work / "qwen2", is_frozen=True)
    whole = Ragged(engine.forward_log_probs(rows, temperature=0.7)["log_probs"], rows.ragged("response_ids").offsets)
    order = np.array([7, 2, 2, 5, 0])
    chosen = DataProto.concat([rows.select_idxs(order[:3]), rows.view(5, 6), rows.select_idxs(order[4:])])
    found = engine.forward_log_probs(chosen, temperature=0.7)["log_probs"]
    np.testing.assert_allclose(found, whole.take(order).values, rtol=1e-6, atol=1e-6)


def test_an_update_follows_the_gradient_over_the_candidates(work: Path) -> None:
    rows = with_candidates(make_rows(seed=1))
    plain = AutoModelForCausalLM.from_pretrained(work / "qwen2").double()
    log_probs, entropies = reference(plain, rows, 0.8)
    mask, advantages = (torch.from_numpy(rows.ragged(name).values) for name in ("response_mask", "advantages"))
    loss = -((log_probs * advantages + 0.1 * entropies) * mask).sum() / mask.sum()
    loss.backward()
    norm = torch.cat([parameter.grad.flatten() for parameter in plain.parameters() if parameter.grad is not None])
    metrics = build_learner(work / "qwen2", max_tokens=30).update(rows, PolicyLoss())
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["grad_norm"] == pytest.approx(norm.norm().item(), rel=1e-4)


def test_columns_of_empty_sets_change_no_bit_of_an_update(work: Path) -> None:
    rows = make_rows(seed=1)
    counts = Ragged(np.zeros_like(rows.ragged("response_ids").values), rows.ragged("response_ids").offsets)
    none = Ragged.from_rows([[]] * len(rows), "int32")
    unlimited = DataProto({**rows.columns, "candidate_ids": none, "num_candidates": counts})
    learners = [build_learner(work / "qwen2") for _ in range(2)]
    metrics = [learner.update(of, PolicyLoss()) for learner, of in zip(learners, (rows, unlimited), strict=True)]
    assert metrics[0] == metrics[1]
    weights = [weights_of(learner.engine) for learner in learners]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


def test_the_trainer_has_the_log_probs_of_an_engine_that_cuts_candidates(work: Path) -> None:
    """One response per request of the plain engine, with the same weights in float32."""
    folder = work / "qwen2"
    engine = rollout_engine(
        "hf",
        model_path=str(folder),
        tokenizer_path="",
        model=ModelConfig(path=str(folder)),
        rollout=RolloutConfig(),
        max_model_len=64,
        device="cpu",
        seed=1,
        run_id="unit",
    )
    engine.begin_sync(0)
    engine.load(AutoModelForCausalLM.from_pretrained(folder).state_dict().items())
    engine.finish_sync()
    sampling = Sampling(max_tokens=20, temperature=0.8, top_p=0.9, top_k=20, returns_candidates=True)
    asked = requests(6, sampling=sampling)
    engine.submit(asked)
    done = {}
    while engine.has_unfinished():
        done |= {finished.request_id: finished for finished in engine.step()}
    found = [done[request.request_id] for request in asked]
    columns = {
        "prompt_ids": Ragged.from_rows([request.prompt_ids for request in asked], "int32"),
        "response_ids": Ragged.from_rows([of.response_ids for of in found], "int32"),
    }
    sets = {
        "candidate_ids": Ragged.from_rows([np.concatenate(of.candidates) for of in found], "int32"),
        "num_candidates": Ragged.from_rows([[len(ids) for ids in of.candidates] for of in found], "int32"),
    }
    engines = np.concatenate([of.log_probs for of in found])
    trainer = build_engine(folder, is_frozen=True)
    kept = trainer.forward_log_probs(DataProto({**columns, **sets}), temperature=0.8)["log_probs"]
    whole = trainer.forward_log_probs(DataProto(columns), temperature=0.8)["log_probs"]
    np.testing.assert_allclose(kept, engines, atol=1e-4)
    assert np.abs(whole - engines).mean() > 0.05, "the mass that was cut"
