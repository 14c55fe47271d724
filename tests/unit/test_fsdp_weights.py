"""Full tensors for the rollout engine: right values, few collectives, separate storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import AutoModelForCausalLM

from tests.unit._fsdp_ranks import PolicyLoss, build_engine, build_learner, make_rows, write_models
from tests.unit._rank_processes import join_ranks, leave_ranks
from verl_like.backends.fsdp.gathering import CollectiveGather, gather_on, opened, shared_memory


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("fsdp"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.mark.parametrize("name", ["qwen2", "qwen3-tied"])
@pytest.mark.parametrize("sync_bucket_mib", [1e-9, 0.01, 64])
def test_streamed_weights_are_the_models_under_its_names(work: Path, name: str, sync_bucket_mib: float) -> None:
    engine = build_engine(work / name, sync_bucket_mib=sync_bucket_mib)
    expected = AutoModelForCausalLM.from_pretrained(work / name).state_dict()
    found = [(key, weight.clone()) for key, weight in engine.named_weights()]
    assert sorted(key for key, _ in found) == sorted(expected)  # tied ones under both names
    assert all(torch.equal(weight, expected[key]) for key, weight in found)


def test_streamed_weights_follow_updates_and_equal_the_full_state_dict(work: Path) -> None:
    learner = build_learner(work / "qwen2")
    learner.engine.forward_log_probs(make_rows(), temperature=1.0)  # leaves the root gathered unless it is freed
    learner.update(make_rows(seed=1), PolicyLoss())
    full = get_model_state_dict(learner.engine.module, options=StateDictOptions(full_state_dict=True))
    assert all(torch.equal(weight, full[f"backbone.{name}"]) for name, weight in learner.engine.named_weights())


def test_every_kept_tensor_owns_its_storage_and_outlives_the_next_update(work: Path) -> None:
    learner = build_learner(work / "qwen2")
    learner.engine.layout.reshard()
    weights = dict(learner.engine.full_tensors(learner.engine.module.backbone, torch.float32, is_kept=True))
    copies = {name: weight.clone() for name, weight in weights.items()}
    for weight in weights.values():
        assert weight.untyped_storage().nbytes() == weight.nbytes
    assert len({weight.untyped_storage().data_ptr() for weight in weights.values()}) == len(weights)
    learner.update(make_rows(seed=1), PolicyLoss())
    assert all(torch.equal(weight, copies[name]) for name, weight in weights.items())


def test_a_second_stream_copies_no_byte_to_new_memory(work: Path) -> None:
    engine = build_engine(work / "qwen2", sync_bucket_mib=0.01)

    def addresses() -> set[int]:
        return {weight.untyped_storage().data_ptr() for _, weight in engine.named_weights()}

    first = addresses()
    assert len(first) == 1, "all tensors are in the memory that the ranks share"
    assert addresses() == first


def test_tied_weights_are_one_tensor(work: Path) -> None:
    weights = dict(build_engine(work / "qwen3-tied").named_weights())
    assert weights["lm_head.weight"] is weights["model.embed_tokens.weight"]


def test_weights_come_in_the_rollouts_dtype(work: Path) -> None:
    exact = {name: weight.clone() for name, weight in build_engine(work / "qwen2").named_weights()}
    rounded = build_engine(work / "qwen2", rollout_dtype="bfloat16").named_weights()
    assert all(torch.equal(weight, exact[name].bfloat16()) for name, weight in rounded)


def test_many_small_tensors_are_gathered_at_once(work: Path) -> None:
    engine = build_engine(work / "qwen2")
    assert len(list(engine.named_weights())) > 20
    assert engine.gather is not None
    assert engine.gather.num_tables == 1


def test_memory_is_shared_only_with_the_process_that_was_meant(tmp_path: Path) -> None:
    place = tmp_path / "memory"
    place.write_bytes(b"a token" + bytes(57))
    found = opened(str(place), 64, b"a token")
    assert found is not None
    found[10] = 7
    assert place.read_bytes()[10] == 7
    assert opened(str(place), 128, b"a token") is None, "of another size"
    assert opened(str(place), 64, b"another") is None
    assert opened(str(tmp_path / "not there"), 64, b"a token") is None


def test_where_the_host_gives_no_memory_a_collective_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(name: str) -> int:
        raise PermissionError(name)

    monkeypatch.setattr(os, "memfd_create", refuses)
    assert isinstance(gather_on(torch.device("cpu"), max_bytes=64), CollectiveGather)


def test_a_large_tensor_comes_in_parts_if_the_host_gives_no_memory_for_it(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = build_engine(work / "qwen2", sync_bucket_mib=0.001)
    expected = {name: weight.clone() for name, weight in engine.named_weights()}
    assert engine.gather is not None
    before = engine.gather.num_tables

    def refuses(name: str) -> int:
        raise PermissionError(name)

    monkeypatch.setattr(os, "memfd_create", refuses)
    assert all(torch.equal(weight, expected[name]) for name, weight in engine.named_weights())
    assert engine.gather.num_tables - before > before


def test_shared_memory_has_no_name_and_goes_with_its_last_user() -> None:
    before, names = len(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))
    memory = shared_memory(4096)
    assert memory is not None
    memory.fill_(1)
    assert set(os.listdir("/dev/shm")) <= names
    del memory
    assert len(os.listdir("/proc/self/fd")) == before
