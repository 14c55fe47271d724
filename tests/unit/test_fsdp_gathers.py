"""Layers that stay gathered, and gathers ahead of time: what is sent changes, no number does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit._fsdp_ranks import GATHERS, run_ranks, write_models
from tests.unit.test_fsdp_engine import assert_same_run

pytestmark = pytest.mark.processes

Results = dict[Any, Any]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("gathers"))


@pytest.fixture(scope="module")
def ranks(work: Path) -> list[Results]:
    return [results["gathers"] for results in run_ranks(["gathers"], world_size=4, work=work)]


WAYS = [("all", way) for way in GATHERS if way != "plain"] + [
    (kind, way) for kind in ("all", "pairs", "lora") for way in ("both", "both_checkpointed", "on_host")
]
BACKWARD = "+3 3 +2 2 +1 1 +0 0"  # where FSDP2 has each gather be followed by the next layer's
FORWARD = "0 +0 1 +1 2 +2 3 +3"
PLAIN = f"{FORWARD} {BACKWARD}"
KEPT_AND_AHEAD = "+0 +1 0 +2 1 +3 2 3 3 +1 2 +0 1 0"


def assert_equal_to_the_bit(found: Results, expected: Results) -> None:
    assert found["metrics"] == expected["metrics"]
    for name, weight in found["weights"].items():
        assert torch.equal(weight, expected["weights"][name]), name


def test_layers_that_are_kept_and_gathered_ahead_change_no_number(work: Path) -> None:
    for results in run_ranks(["kept_and_ahead"], world_size=2, work=work):
        found = results["kept_and_ahead"]
        assert_equal_to_the_bit(found["all", "kept_and_ahead"], found["all", "plain"])
        assert found["order", "plain"] == PLAIN
        assert found["order", "kept_and_ahead"] == KEPT_AND_AHEAD


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_however_layers_are_gathered_the_numbers_are_equal_to_the_bit(
    ranks: list[Results], kind: str, way: str
) -> None:
    for results in ranks:
        assert_equal_to_the_bit(results[kind, way], results[kind, "plain"])


@pytest.mark.slow
def test_a_layer_that_is_kept_is_not_gathered_for_backward(ranks: list[Results]) -> None:
    for results in ranks:
        assert results["order", "plain"] == PLAIN
        assert results["order", "last_kept"] == f"{FORWARD} 3 +2 2 +1 1 +0 0"
        assert results["order", "all_kept"] == f"{FORWARD} 3 2 1 0"


@pytest.mark.slow
def test_gathers_run_as_far_ahead_as_configured(ranks: list[Results]) -> None:
    for results in ranks:
        assert results["order", "one_ahead"] == "+0 0 +1 1 +2 2 +3 3 +3 3 +2 2 +1 1 +0 0"
        assert results["order", "two_ahead"] == "+0 +1 0 +2 1 +3 2 3 +3 +2 3 +1 2 +0 1 0"
        assert results["order", "more_ahead_than_layers"] == "+0 +1 +2 +3 0 1 2 3 +3 +2 +1 +0 3 2 1 0"
        assert results["order", "kept_and_ahead"] == KEPT_AND_AHEAD


@pytest.mark.slow
def test_every_weight_goes_to_the_host_as_it_is_read_and_every_group_finds_it_there(ranks: list[Results]) -> None:
    for results in ranks:
        assert results["moved"] == 4 * 12 + 3  # projections with biases, products and norms of a layer; and the rest
        assert results["policies"] == ["CPUOffloadPolicy"] * 7  # the root, the embedding, four layers, the output layer


@pytest.mark.slow
def test_a_checkpoint_from_host_memory_continues_there_and_elsewhere(ranks: list[Results]) -> None:
    for results in ranks:
        for name in ("loaded", "loaded_on_host"):
            expected = {
                "metrics": results["all", "plain"]["metrics"][1:],
                "weights": results["all", "plain"]["weights"],
            }
            assert_same_run(results[name], expected)
