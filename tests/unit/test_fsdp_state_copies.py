"""A checkpoint out of copies is, bit for bit, the one that the learner waits for."""

from __future__ import annotations

import filecmp
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit._fsdp_ranks import SCENARIOS, PolicyLoss, build_learner, make_rows, run_ranks, write_models
from tests.unit._rank_processes import join_ranks, leave_ranks
from verl_like.backends.fsdp.state_copies import StateCopies

SETTINGS = ("shards", "replicas", "lora", "lora_replicas", "copies", "bfloat16", "lora_bfloat16")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("copied"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def ranks(work: Path) -> dict[int, list[dict[str, Any]]]:
    """Return the results of each rank, by the number of ranks."""
    two = run_ranks(["copied"], world_size=2, work=work)
    return {1: [SCENARIOS["copied"](work)], 2: [found["copied"] for found in two]}


@pytest.mark.processes
@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_files_out_of_copies_are_those_that_are_waited_for(
    work: Path, ranks: dict[int, list[dict[str, Any]]], setting: str, num_ranks: int
) -> None:
    for seed in (1, 2):
        whole, copied = (work / f"{kind}-{setting}-{num_ranks}-{seed}" for kind in ("whole", "copied"))
        names = sorted(path.name for path in whole.iterdir())
        assert names == sorted(path.name for path in copied.iterdir())
        assert len([name for name in names if name.startswith("rng_rank_")]) == num_ranks
        states = [name for name in names if name != ".metadata"]
        assert filecmp.cmpfiles(whole, copied, states, shallow=False) == (states, [], [])
        metadata = [pickle.loads((path / ".metadata").read_bytes()) for path in (whole, copied)]
        assert metadata[0].state_dict_metadata == metadata[1].state_dict_metadata


@pytest.mark.processes
@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_continues_from_copies_bit_for_bit(
    ranks: dict[int, list[dict[str, Any]]], setting: str, num_ranks: int
) -> None:
    for found in (rank[setting] for rank in ranks[num_ranks]):
        assert found["resumed"]["metrics"] == found["went_on"]["metrics"]
        for name, weight in found["went_on"]["weights"].items():
            assert torch.equal(found["resumed"]["weights"][name], weight), name
        assert torch.equal(*found["draws"])


def test_copies_share_nothing_with_the_learner(work: Path) -> None:
    learner = build_learner(work / "qwen2")
    learner.update(make_rows(seed=1), PolicyLoss())
    state = {
        "weights": {name: weight.detach() for name, weight in learner.engine.module.named_parameters()},
        "moments": learner.optimizer.state_dict(),
        "schedule": learner.schedule.state_dict(),
    }
    copied = StateCopies(torch.device("cpu"), timeout_s=10).of(state)
    places = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(state)}
    assert len(places) > 20
    assert not places & {tensor.untyped_storage().data_ptr() for tensor in tensors_in(copied)}
    state["moments"]["param_groups"][0]["lr"] = state["schedule"]["_last_lr"][0] = -1.0
    assert copied["moments"]["param_groups"][0]["lr"] != -1.0 and copied["schedule"]["_last_lr"][0] != -1.0


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value.to_local() if isinstance(value, torch.distributed.tensor.DTensor) else value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
