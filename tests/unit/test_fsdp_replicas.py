"""Models that every rank has whole: the same updates as of a sharded one, and checkpoints that either reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit._fsdp_ranks import SCENARIOS, build_learner, run_ranks, write_models
from tests.unit._rank_processes import join_ranks, leave_ranks
from tests.unit.test_fsdp_engine import assert_same_run
from verl_like.backends.fsdp.layout import MAX_REPLICA_BYTES, is_cut
from verl_like.backends.fsdp.replicas import Replicas
from verl_like.backends.fsdp.sharding import Sharding
from verl_like.config.schema import FsdpConfig

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SMALL, LARGE = MAX_REPLICA_BYTES // 4, MAX_REPLICA_BYTES // 4 + 1


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("replicas"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def sharded(work: Path) -> dict[str, Any]:
    """One rank with a sharded model."""
    return {name: SCENARIOS[name](work) for name in ("updates", "save")}


@pytest.fixture(scope="module")
def ranks(work: Path, sharded: dict[str, Any]) -> list[dict[str, Any]]:
    """One rank with all, and two ranks."""
    two = run_ranks(["save", "replicas"], world_size=2, work=work)
    return [SCENARIOS["replicas"](work), *(results["replicas"] for results in two)]


def one_update(found: dict[str, Any]) -> dict[str, Any]:
    """As it is compared."""
    return {"metrics": [found["metrics"]], "weights": found["weights"]}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    "setting",
    ["plain", "uneven", "no_rows_on_one_rank", "no_columns_on_one_rank", "gradient_checkpointing", "small_buckets"],
)
def test_replicas_learn_what_shards_learn(ranks: list[dict[str, Any]], sharded: dict[str, Any], setting: str) -> None:
    for found in ranks:
        assert_same_run(found[setting], sharded["updates"]["plain"])


@pytest.mark.slow
@pytest.mark.processes
def test_values_and_tied_weights_too(ranks: list[dict[str, Any]], sharded: dict[str, Any]) -> None:
    for found in ranks:
        assert_same_run(found["value"], sharded["updates"]["value"])
        assert_same_run(found["tied"], found["tied_shards"])


@pytest.mark.slow
@pytest.mark.processes
def test_two_replicas_are_equal_to_the_bit(ranks: list[dict[str, Any]]) -> None:
    _, one, other = ranks
    for setting in ("plain", "uneven", "no_rows_on_one_rank", "tied", "loaded", "loaded_again"):
        for name, weight in one[setting]["weights"].items():
            assert torch.equal(weight, other[setting]["weights"][name]), (setting, name)


@pytest.mark.slow
@pytest.mark.processes
def test_replicas_continue_from_a_checkpoint_of_shards(ranks: list[dict[str, Any]], sharded: dict[str, Any]) -> None:
    for found in ranks:
        assert_same_run(one_update(found["loaded"]), one_update(sharded["save"]))


@pytest.mark.slow
@pytest.mark.processes
def test_shards_continue_from_a_checkpoint_of_replicas(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert_same_run(one_update(found["loaded_by_shards"]), one_update(found["loaded_again"]))


@pytest.mark.slow
@pytest.mark.processes
def test_gradients_that_only_some_ranks_have_are_summed_like_the_others(ranks: list[dict[str, Any]]) -> None:
    """An expert that no token of a rank chose has no gradient there."""
    for found in ranks[1:]:
        gradients = found["gradients"]
        assert gradients[:3] == [2.0, 1.0, None]
        assert gradients == (gradients[:3] * len(gradients))[: len(gradients)]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("way", ["memory", "collective"])
def test_sums_are_those_of_all_ranks_whatever_fits_at_once(ranks: list[dict[str, Any]], way: str) -> None:
    for num_ranks, found in zip((1, 2, 2), ranks, strict=True):
        weight = {1: 1, 2: 11}[num_ranks]
        assert [len(tensor) for tensor in found["sums"][way]] == [5, 100, 0, 1, 64, 7]
        for tensor in found["sums"][way]:
            assert torch.equal(tensor, torch.arange(float(len(tensor))) * weight)


@pytest.mark.parametrize(
    ("device", "dtype", "is_frozen", "num_parameters", "expected"),
    [
        (CPU, torch.float32, False, SMALL, False),
        (CPU, torch.float32, False, LARGE, True),
        (CPU, torch.bfloat16, False, SMALL, True),
        (CPU, torch.bfloat16, True, SMALL, False),
        (GPU, torch.bfloat16, False, SMALL, True),
        (GPU, torch.float32, False, SMALL, True),
    ],
)
def test_small_models_on_cpu_are_whole_by_themselves(
    device: torch.device, dtype: torch.dtype, is_frozen: bool, num_parameters: int, expected: bool
) -> None:
    found = is_cut(FsdpConfig(), device=device, dtype=dtype, is_frozen=is_frozen, num_parameters=num_parameters)
    assert found is expected


def test_the_engine_does_as_configured(work: Path) -> None:
    for shard_size, kind in (("auto", Replicas), ("1", Replicas), ("all", Sharding)):
        learner = build_learner(work / "qwen2", fsdp=FsdpConfig(shard_size=shard_size))
        assert isinstance(learner.engine.layout, kind)


def test_replicas_in_another_dtype_than_their_masters_are_refused(work: Path) -> None:
    with pytest.raises(ValueError, match=r"fsdp.shard_size is 1.*bfloat16.*Set fsdp.shard_size=all, or"):
        build_learner(work / "qwen2", fsdp=FsdpConfig(shard_size="1", param_dtype="bfloat16"))
