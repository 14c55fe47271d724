"""How a call to a worker method is distributed over the ranks of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


class Dispatch(Enum):
    BROADCAST = "the same arguments to every rank, every rank's result"
    RANK_ZERO = "rank 0 alone"
    SPLIT = "each rank its own rows of a RemoteBatch; facts come back, columns stay in the store"
    STREAM = "each rank its own rows; (facts, block) pairs come back while the method runs"


class MethodCall(NamedTuple):
    """A call of a role's method as one object, because Ray serialises each argument of a call separately.

    Args:
        stage: name of the stage that the time is charged to.
        before: calls that the process makes before this one; the time of each is charged to its own stage.
    """

    stage: str
    role: str
    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    before: Sequence[MethodCall] = ()

    @property
    def title(self) -> str:
        return f"{self.role}.{self.method}"


_MODES: dict[Callable[..., Any], Dispatch] = {}


def dispatch(mode: Dispatch) -> Callable[[Method], Method]:
    """Declare the dispatch mode of a worker method."""

    def mark(method: Method) -> Method:
        _MODES[method] = mode
        return method

    return mark


@dataclass(frozen=True, slots=True)
class RemoteMethod:
    """Identifies a worker method in a call: the class of its role, its name, and its dispatch mode."""

    role: str
    name: str
    mode: Dispatch


def remote_method(method: Callable[..., Any], *allowed: Dispatch) -> RemoteMethod:
    """Return the declaration of ``method``; assert that the caller uses an allowed mode."""
    mode = _MODES.get(method)
    assert mode in allowed, f"{method.__qualname__} is declared {mode}; this call takes {[m.name for m in allowed]}"
    role, name = method.__qualname__.split(".")
    return RemoteMethod(role, name, mode)
