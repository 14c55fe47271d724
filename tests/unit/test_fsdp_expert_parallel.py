"""Experts that stay on their ranks: several ranks learn what one rank learns with gathered experts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM

from tests.unit._fsdp_expert_ranks import (
    DIFFERENT,
    EQUAL,
    FAMILIES,
    GATHERED,
    PARALLEL,
    checkpoints,
    copied,
    exported,
    families,
    in_bfloat16,
    kept,
    loaded,
    updated,
    updates,
    updates_of_copies,
)
from tests.unit._fsdp_ranks import build_engine, build_learner, make_rows, tiny_model
from tests.unit._fsdp_router_ranks import NUM_LAYERS, write_mixture
from tests.unit._fsdp_teacher_ranks import two_updates
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
    """Return what one rank learns with gathered experts."""
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


@pytest.fixture(scope="module")
def of_families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    for name, (write, _) in FAMILIES.items():
        write(folder / name)
    return folder


@pytest.fixture(scope="module")
def two_ranks_of_families(of_families: Path) -> list[dict[str, Any]]:
    return on_ranks(families, of_families, world_size=2)


@pytest.mark.processes
@pytest.mark.parametrize("name", FAMILIES)
def test_two_ranks_learn_what_one_learns_of_each_family(
    of_families: Path, two_ranks_of_families: list[dict[str, Any]], name: str
) -> None:
    alone = updated(of_families / name, fsdp=GATHERED, **FAMILIES[name][1])
    for found in two_ranks_of_families:
        assert_same_run(found[name], alone, atol=1e-5)


@pytest.mark.processes
def test_a_mixture_learns_from_another_one(path: Path, of_families: Path) -> None:
    teacher = of_families / "Mixtral"
    alone = two_updates(path, teacher)
    for found in on_ranks(partial(two_updates, split="all_on_first", fsdp=PARALLEL), path, teacher, world_size=2):
        assert found["is_sharded"]
        assert_same_run(found, alone, atol=1e-5)


@pytest.mark.processes
def test_experts_compute_in_the_dtype_of_the_forward_pass(path: Path, expected: dict[str, Any]) -> None:
    [found, _] = on_ranks(in_bfloat16, path, world_size=2)
    weights = {
        layout: torch.cat([weight.flatten() for weight in run["weights"].values()]) for layout, run in found.items()
    }
    exact = torch.cat([weight.flatten() for weight in expected["weights"].values()])
    errors = {layout: (flat - exact).norm().item() for layout, flat in weights.items()}
    assert errors["gathered"] > 1e-3, "bfloat16 rounds"
    assert errors["parallel"] == pytest.approx(errors["gathered"], rel=0.2)


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


@pytest.mark.processes
def test_a_reference_can_copy_the_experts_of_all_ranks(path: Path) -> None:
    for weights, *of_references in on_ranks(copied, path, world_size=2):
        for found in of_references:
            assert all(torch.equal(found[name], weight) for name, weight in weights.items())


@pytest.mark.processes
def test_experts_that_cannot_be_divided_equally_are_refused(path: Path) -> None:
    with pytest.raises(AssertionError, match=r"a layer has 8 experts, which cannot be divided equally among 3 ranks"):
        on_ranks(kept, path, world_size=3)


def test_a_dense_model_is_refused(tmp_path: Path) -> None:
    tiny_model("qwen2").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"Qwen2ForCausalLM has no packed experts without biases \(down_proj and gate"):
        updated(tmp_path)


def test_layers_that_exchange_tokens_are_not_compiled(path: Path) -> None:
    engine = build_learner(path, fsdp=PARALLEL, compile_layers=True).engine
    assert not engine.compile_layers(400.0)


def test_experts_are_computed_by_grouped_products(path: Path) -> None:
    engine = build_engine(path, is_frozen=True)
    found, products = {}, {}
    for name in ("grouped_mm", "eager"):
        if name == "eager":
            engine.module.backbone.set_experts_implementation(name)
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            found[name] = engine.forward_log_probs(make_rows(), temperature=1.0)["log_probs"]
        products[name] = sum(event.count for event in profiled.key_averages() if event.key == "aten::_grouped_mm")
    assert products["grouped_mm"] >= 2 * NUM_LAYERS and products["eager"] == 0
    np.testing.assert_allclose(found["grouped_mm"], found["eager"], atol=1e-5)
