"""The cache of vLLM's CPU engines takes memory only where it is used, and is zero everywhere."""

from __future__ import annotations

import inspect

import psutil
import pytest
import torch

from verl_like.backends.vllm.cache_memory import LEAST_BYTES, ZeroedWhenUsed

NUM_BYTES = 2**28


def used_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def test_zeros_take_memory_where_they_are_written() -> None:
    before = used_bytes()
    with ZeroedWhenUsed():
        cache = torch.zeros(NUM_BYTES, dtype=torch.int8, device=torch.device("cpu"))
    assert cache.shape == (NUM_BYTES,) and cache.dtype == torch.int8
    assert used_bytes() - before < NUM_BYTES / 4
    assert not cache[:: 2**20].any()
    cache.view(torch.float32)[: NUM_BYTES // 8] = 1.0  # half of it
    assert used_bytes() - before > NUM_BYTES / 4
    assert cache.view(torch.float32).sum() == NUM_BYTES // 8


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(LEAST_BYTES - 1, dtype=torch.int8),
        lambda: torch.zeros(4 * LEAST_BYTES),
        lambda: torch.zeros((2, LEAST_BYTES), dtype=torch.int8),
        lambda: torch.zeros(LEAST_BYTES, dtype=torch.int8, device="meta"),
        lambda: torch.ones(LEAST_BYTES, dtype=torch.int8),
    ],
)
def test_other_tensors_are_created_by_torch(make: object) -> None:
    assert callable(make)
    expected = make()
    with ZeroedWhenUsed():
        found = make()
    assert (found.shape, found.dtype, found.device) == (expected.shape, expected.dtype, expected.device)
    assert found.is_meta or (torch.equal(found, expected) and found.untyped_storage().resizable())


def test_vllm_allocates_its_cache_in_the_form_that_is_replaced() -> None:
    utils = pytest.importorskip("vllm.v1.worker.utils")
    source = inspect.getsource(utils.allocate_kv_cache)
    assert source.count("torch.zeros(") == 1 and "torch.zeros(buf_size, dtype=torch.int8, device=device)" in source
