"""How a call on a worker method is spread over the ranks of a group."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


class Dispatch(Enum):
    BROADCAST = "the same arguments to every rank, every rank's result"
    RANK_ZERO = "rank 0 alone"
    SPLIT = "each rank its own rows of a RemoteBatch; facts come back, columns stay in the store"
    STREAM = "each rank its own rows; (facts, block) pairs come back while the method runs"


_MODES: dict[Callable[..., Any], Dispatch] = {}


def dispatch(mode: Dispatch) -> Callable[[Method], Method]:
    """Declare how a worker method is called."""

    def mark(method: Method) -> Method:
        _MODES[method] = mode
        return method

    return mark


def check_mode(method: Callable[..., Any], *allowed: Dispatch) -> Dispatch:
    """The declared mode, after asserting that the caller uses the method as declared."""
    mode = _MODES.get(method)
    assert mode in allowed, f"{method.__qualname__} is declared {mode}; this call takes {[m.name for m in allowed]}"
    return mode
