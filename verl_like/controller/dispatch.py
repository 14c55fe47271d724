"""How a call on a worker method is spread over the ranks of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class RemoteMethod:
    """A worker method as a call names it: the class of its role, its own name, and how it is spread over ranks."""

    role: str
    name: str
    mode: Dispatch


def remote_method(method: Callable[..., Any], *allowed: Dispatch) -> RemoteMethod:
    """What ``method`` is declared as, after asserting that the caller uses it that way."""
    mode = _MODES.get(method)
    assert mode in allowed, f"{method.__qualname__} is declared {mode}; this call takes {[m.name for m in allowed]}"
    role, name = method.__qualname__.split(".")
    return RemoteMethod(role, name, mode)
