"""Memory on an accelerator leaves out what sleeps in vLLM's allocator, although torch counts it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from verl_like.telemetry.device_memory import DeviceMemory, asleep_bytes

ENGINE, CACHE = 10, 20  # bytes of a sleeping engine


class Accelerator:
    """torch's counters, and vLLM's allocator with an engine."""

    def __init__(self) -> None:
        self.allocated = self.peak = ENGINE + CACHE
        self.blocks = {
            1: SimpleNamespace(handle=(0, ENGINE), tag="weights", is_asleep=False),
            2: SimpleNamespace(handle=(0, CACHE), tag="kv_cache"),
        }
        self.sleep(is_asleep=False)

    def sleep(self, *, is_asleep: bool) -> None:
        for block in self.blocks.values():
            block.is_asleep = is_asleep

    def allocate(self, num_bytes: int) -> None:
        self.allocated += num_bytes
        self.peak = max(self.peak, self.allocated)

    def reset(self) -> None:
        self.peak = self.allocated


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    found = Accelerator()
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        memory_allocated=lambda: found.allocated,
        max_memory_allocated=lambda: found.peak,
        reset_peak_memory_stats=found.reset,
    )
    allocator: Any = SimpleNamespace(
        CuMemAllocator=SimpleNamespace(instance=SimpleNamespace(pointer_to_data=found.blocks))
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "vllm.device_allocator.cumem", allocator)
    return found


def test_an_update_during_which_an_engine_sleeps_takes_only_its_memory(accelerator: Accelerator) -> None:
    """A 7B model's update showed 36 GiB more than it takes."""
    memory = DeviceMemory()
    assert memory.take() == (ENGINE + CACHE, ENGINE + CACHE)
    memory.mark()
    accelerator.sleep(is_asleep=True)
    accelerator.allocate(7)
    accelerator.allocate(-4)
    assert memory.take() == (3, ENGINE + CACHE), "the engine was awake when the step began"
    accelerator.allocate(5)
    assert memory.take() == (8, 8)
    accelerator.allocate(-8)
    memory.mark()
    accelerator.sleep(is_asleep=False)
    assert memory.take() == (ENGINE + CACHE, ENGINE + CACHE)


def test_a_process_without_an_accelerator_or_without_vllm_is_counted_too(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "vllm.device_allocator.cumem")
    assert DeviceMemory().take() == (ENGINE + CACHE, ENGINE + CACHE)
    monkeypatch.delitem(sys.modules, "torch")
    assert DeviceMemory().take() == (0, 0)


def test_what_sleeps_is_counted_by_part(accelerator: Accelerator) -> None:
    assert asleep_bytes() == 0
    accelerator.sleep(is_asleep=True)
    assert (asleep_bytes("weights"), asleep_bytes("kv_cache"), asleep_bytes()) == (ENGINE, CACHE, ENGINE + CACHE)
