"""Memory of this process on its accelerator, without what sleeps.

PyTorch's counters keep counting memory of a sleeping engine, which vLLM's allocator has returned to the device.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass
class DeviceMemory:
    """The peak since the last :meth:`take`, in bytes; 0 without an accelerator.

    Args:
        peak_bytes: of the time up to the last :meth:`mark`.
    """

    peak_bytes: int = 0

    def mark(self) -> None:
        """Count the peak so far; called before an engine falls asleep or wakes."""
        if (torch := _torch()) is None:
            return
        self.peak_bytes = max(self.peak_bytes, torch.cuda.max_memory_allocated() - asleep_bytes())
        torch.cuda.reset_peak_memory_stats()

    def take(self) -> tuple[int, int]:
        """Return the bytes in use now, and the peak since the last call."""
        if (torch := _torch()) is None:
            return 0, 0
        self.mark()
        peak, self.peak_bytes = self.peak_bytes, 0
        return torch.cuda.memory_allocated() - asleep_bytes(), peak


def _torch() -> Any:
    """Return torch if this process uses an accelerator; one that has not imported torch uses none."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def asleep_bytes(tag: str = "") -> int:
    """Return the bytes that vLLM's allocator has returned to the device while torch still counts them (vllm 0.32).

    Args:
        tag: vLLM's name of a part of its memory; empty for all.
    """
    module = sys.modules.get("vllm.device_allocator.cumem")
    allocator = None if module is None else module.CuMemAllocator.instance
    if allocator is None:
        return 0
    asleep = [data for data in allocator.pointer_to_data.values() if data.is_asleep]
    return sum(data.handle[1] for data in asleep if tag in ("", data.tag))
