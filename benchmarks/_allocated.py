"""Memory that torch allocates on CPU, as counted by its profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def allocated(call: Callable[[], object]) -> float:
    """Return the peak bytes that torch allocates during a call, above the level before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    return float(most_allocated(profiled))


@contextmanager
def sent_states_held() -> Iterator[None]:
    """Keep what ranks with experts send to each other until the thread of gloo has let go of it.

    PyTorch's profiler does not see what that thread frees, and would count it as alive to the end.
    """
    from unittest.mock import patch

    from verl_like.backends.fsdp.expert_parallel import Exchange

    rows_of = Exchange.rows

    def and_waited(self: Exchange, states: Any, *arguments: Any) -> Any:
        found = rows_of(self, states, *arguments)
        time.sleep(0.02)
        return found

    with patch.object(Exchange, "rows", and_waited):
        yield


def most_allocated(profiled: profile, *, but: Container[int] = ()) -> int:
    """Return the peak bytes of a profile that was recorded with ``profile_memory``.

    Args:
        but: allocations of these sizes in bytes are ignored.
    """
    recorded: Any = profiled.profiler  # its annotations lack the bytes
    held, most = 0, 0
    for event in sorted(recorded.kineto_results.events(), key=lambda event: event.start_ns()):
        is_memory = event.name() == "[memory]" and event.device_type() == DeviceType.CPU
        if is_memory and abs(event.nbytes()) not in but:
            held += event.nbytes()
            most = max(most, held)
    return most
