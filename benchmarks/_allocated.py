"""What torch hands out on CPU, as its profiler counts it."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def allocated(call: Callable[[], object]) -> float:
    """The most bytes that torch has handed out at once during a call, above what it had before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    return float(most_allocated(profiled))


def most_allocated(profiled: profile, *, but: Container[int] = ()) -> int:
    """The same, of what was profiled with its memory.

    Args:
        but: sizes in bytes that do not count.
    """
    recorded: Any = profiled.profiler  # whose annotations lack the bytes
    held, most = 0, 0
    for event in sorted(recorded.kineto_results.events(), key=lambda event: event.start_ns()):
        is_memory = event.name() == "[memory]" and event.device_type() == DeviceType.CPU
        if is_memory and abs(event.nbytes()) not in but:
            held += event.nbytes()
            most = max(most, held)
    return most
