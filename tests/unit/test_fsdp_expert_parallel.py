"""Experts that stay on their ranks: several ranks learn what one rank learns with gathered experts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.unit._fsdp_expert_ranks import (
    DIFFERENT,
    EQUAL,
    GATHERED,
    PARALLEL,
    checkpoints,
    exported,
    kept,
    loaded,
    updated,
    updates,
    updates_of_copies,
)
from tests.unit._fsdp_ranks import build_learner, tiny_model
from tests.unit._fsdp_router_ranks import write_mixture
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from tests.unit.test_fsdp_engine import assert_same_run

NUM_EXPERTS = 8


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixture(tmp_path_factory.mktemp("mixture"), num_experts=NUM_EXPERTS)


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def expected(path: Path) -> dict[str, Any]:
    """What one rank learns with gathered experts."""
    return updated(path, fsdp=GATHERED, max_tokens=10_000)


def test_one_rank_with_all_experts_learns_the_same(path: Path, expected: dict[str, Any]) -> None:
    assert_same_run(updated(path), expected, atol=1e-5)


@pytest.fixture(scope="module")
def two_ranks(path: Path) -> list[dict[str, Any]]:
    return on_ranks(updates, path, world_size=2)


@pytest.mark.processes
@pytest.mark.parametrize("setting", [*EQUAL, "layer_groups", "layer_groups_recomputed"])
def test_two_ranks_learn_what_one_learns(
    two_ranks: list[dict[str, Any]], expected: dict[str, Any], setting: str
) -> None:
    for found in two_ranks:
        assert_same_run(found[setting], expected, atol=1e-5)


@pytest.mark.processes
@pytest.mark.parametrize("setting", DIFFERENT)
def test_two_ranks_learn_what_one_learns_with_another_option(
    path: Path, two_ranks: list[dict[str, Any]], setting: str
) -> None:
    alone = updated(path, **{"fsdp": GATHERED, **DIFFERENT[setting]})
    for found in two_ranks:
        assert_same_run(found[setting], alone, atol=1e-5)


@pytest.mark.processes
def test_four_ranks_and_copies_of_two_learn_what_one_learns(path: Path, expected: dict[str, Any]) -> None:
    for found in on_ranks(updates_of_copies, path, world_size=4):
        for run in found.values():
            assert_same_run(run, expected, atol=1e-5)


@pytest.mark.processes
def test_no_rank_holds_the_experts_of_another(path: Path) -> None:
    for found in on_ranks(kept, path, world_size=2):
        assert found["sizes"] and all(sizes == [NUM_EXPERTS // 2] * 2 for sizes in found["sizes"])


@pytest.mark.processes
def test_checkpoints_continue_with_and_without_parallel_experts(path: Path, tmp_path: Path) -> None:
    ranks = on_ranks(checkpoints, path, tmp_path, world_size=2)
    for found in ranks:
        for name in ("parallel", "gathered"):
            whole = found[f"{name}_uninterrupted"]
            again = found[f"{name}_read_by_{name}"]
            assert again["metrics"] == whole["metrics"]
            assert all(torch.equal(again["weights"][key], weight) for key, weight in whole["weights"].items())
        for run in found.values():
            assert_same_run(run, found["gathered_uninterrupted"], atol=1e-5)
    assert_same_run(loaded(path, tmp_path / "parallel"), ranks[0]["gathered_uninterrupted"], atol=1e-5)


@pytest.mark.processes
def test_an_export_has_the_weights_and_names_of_the_model(path: Path, tmp_path: Path) -> None:
    found, _ = on_ranks(exported, path, tmp_path / "out", world_size=2)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert found.keys() == AutoModelForCausalLM.from_pretrained(path).state_dict().keys()
    assert all(torch.equal(model[name], weight) for name, weight in found.items())


def test_a_dense_model_is_refused(tmp_path: Path) -> None:
    tiny_model("qwen2").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"expert_parallel is true, but PolicyModel has no packed experts"):
        updated(tmp_path)


def test_layers_that_exchange_tokens_are_not_compiled(path: Path) -> None:
    engine = build_learner(path, fsdp=PARALLEL, compile_layers=True).engine
    assert not engine.compile_layers(400.0)
