"""Copies of arrays to the device of a pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from verl_like.ops.device_copies import on_device


def test_a_copy_to_a_gpu_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def pin_memory(self: Tensor) -> Tensor:
        calls.append("pinned")
        return self

    def to(self: Tensor, device: torch.device, *, non_blocking: bool = False) -> Tensor:
        calls.append((device.type, non_blocking))
        return self

    monkeypatch.setattr(Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(Tensor, "to", to)
    on_device(np.arange(3), torch.device("cuda"))
    assert calls == ["pinned", ("cuda", True)]
    calls.clear()
    on_device(np.arange(3), torch.device("cpu"))
    assert calls == [("cpu", False)]


def test_on_cpu_the_memory_is_shared() -> None:
    array = np.arange(3)
    found = on_device(array, torch.device("cpu"))
    array[0] = 7
    assert found.tolist() == [7, 1, 2]
