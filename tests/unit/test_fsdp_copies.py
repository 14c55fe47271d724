"""Groups of ranks that each have a copy of a model between them (HSDP): four ranks learn what one does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit._fsdp_ranks import build_engine, plain_updates, run_ranks, write_models
from tests.unit._rank_processes import join_ranks, leave_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.config.schema import FsdpConfig

NUM_RANKS = 4


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("copies"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def alone(work: Path) -> dict[str, Any]:
    """One rank, which has the whole model."""
    return plain_updates(work)


@pytest.fixture(scope="module")
def ranks(work: Path) -> list[dict[str, Any]]:
    return [results["copies"] for results in run_ranks(["copies"], world_size=NUM_RANKS, work=work)]


@pytest.mark.processes
@pytest.mark.parametrize(
    "setting", ["plain", "uneven", "no_rows_on_one_rank", "small_buckets", "layer_groups", "value", "lora"]
)
def test_groups_with_a_copy_each_learn_what_one_rank_learns(
    ranks: list[dict[str, Any]], alone: dict[str, Any], setting: str
) -> None:
    for found in ranks:
        assert_same_run(found[setting], alone.get(setting, alone["policy"]))


@pytest.mark.processes
@pytest.mark.parametrize("setting", ["bfloat16", "lora_bfloat16"])
def test_in_bfloat16_groups_learn_what_one_rank_learns_up_to_rounding(
    ranks: list[dict[str, Any]], alone: dict[str, Any], setting: str
) -> None:
    first, *others = ranks
    for found, expected in zip(first[setting]["metrics"], alone[setting]["metrics"], strict=True):
        assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=0.02)
    for other in others:
        assert other[setting]["metrics"] == first[setting]["metrics"]
        for name, weight in first[setting]["weights"].items():
            assert torch.equal(weight, other[setting]["weights"][name]), name


@pytest.mark.processes
def test_each_group_has_all_of_the_model_in_two_pieces(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["placements"] == {("R", "S(0)")}


@pytest.mark.processes
def test_copies_are_equal_to_the_bit(ranks: list[dict[str, Any]]) -> None:
    first, *others = ranks
    for setting in ("plain", "uneven", "tied", "loaded_again"):
        for other in others:
            for name, weight in first[setting]["weights"].items():
                assert torch.equal(weight, other[setting]["weights"][name]), (setting, name)


@pytest.mark.processes
def test_a_checkpoint_is_read_by_copies_and_by_shards(ranks: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    expected = {"metrics": alone["policy"]["metrics"][1:], "weights": alone["policy"]["weights"]}
    for found in ranks:
        for name in ("loaded_again", "loaded_by_shards"):
            assert_same_run(found[name], expected)


def test_a_group_that_does_not_divide_the_ranks_is_refused(work: Path) -> None:
    with pytest.raises(ValueError, match=r"fsdp.shard_size is 2, which does not divide the 1 ranks. Set"):
        build_engine(work / "qwen2", fsdp=FsdpConfig(shard_size="2"))
