"""Weights that move to host memory and back, and page-locked memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.unit._fsdp_ranks import PolicyLoss, build_learner, make_rows, write_models
from tests.unit._fsdp_router_ranks import write_mixture
from tests.unit._rank_processes import join_ranks, leave_ranks
from verl_like.backends.fsdp.offload import HostWeights, locked
from verl_like.backends.fsdp.optim import local_shard
from verl_like.config.schema import FsdpConfig


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.mark.parametrize("is_mixture", [False, True])
def test_weights_that_leave_the_accelerator_and_come_back_are_the_same(tmp_path: Path, is_mixture: bool) -> None:
    """On CPU the accelerator's memory is host memory too, so that only the copies are seen."""
    path = write_mixture(tmp_path) if is_mixture else write_models(tmp_path) / "qwen2"
    fsdp = FsdpConfig(shard_size="all", expert_parallel=is_mixture)
    rows, found = make_rows(), {}
    for leaves in (True, False):
        learner = build_learner(path, fsdp=fsdp)
        weights, module = HostWeights(learner.engine.device), learner.engine.module
        norms = found[leaves] = [learner.update(rows, PolicyLoss())["grad_norm"]]
        for _ in range(2):
            if leaves:
                before = [local_shard(parameter).clone() for parameter in module.parameters()]
                weights.move_out(module)
                held = [local_shard(parameter) for parameter in module.parameters()]
                assert {tensor.data_ptr() for tensor in held} == {memory.data_ptr() for memory in weights.memory}
                assert all(map(torch.equal, held, before))
                weights.move_in(module)
            norms.append(learner.update(rows, PolicyLoss())["grad_norm"])
    assert found[True] == found[False] and len(set(found[True])) == 3


def test_locked_memory_is_unlocked_before_it_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second learner in one process may get the same addresses, which CUDA would refuse to lock again."""
    held: dict[int, int] = {}
    cudart = SimpleNamespace(
        cudaHostRegister=lambda address, num_bytes, flags: held.update({address: num_bytes}) or 0,
        cudaHostUnregister=lambda address: held.pop(address),
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda, "check_error", lambda status: None)
    memory = locked(4096).view(torch.float32).view(32, 32)
    part = memory[3]
    assert held == {memory.data_ptr(): 4096}
    del memory
    gc.collect()
    assert held, "a part is still used"
    del part
    gc.collect()
    assert not held
