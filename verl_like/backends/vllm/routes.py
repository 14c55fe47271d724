"""Record what vLLM's loaders copy in one load, so that later loads repeat the copies without them.

The loaders find a tensor's layer and its rows in 0.1 ms of Python, in which a core copies a megabyte. Checked against
vllm 0.32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Region(NamedTuple):
    """A part of a contiguous tensor."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # of its first element

    def of(self, tensor: Tensor) -> Tensor:
        return tensor.as_strided(self.size, self.stride, tensor.storage_offset() + self.offset)


class Route(NamedTuple):
    """A copy from a tensor of a checkpoint into one of the engine's weights."""

    weight: Tensor
    source: Region
    target: Region


class RouteRecorder(TorchDispatchMode):
    """Records the copies of a load that runs in its context.

    Args:
        weights: everything that the load may write.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:
        super().__init__()
        self._weights = {_address(weight): weight for weight in weights}
        self._routes: dict[str, list[Route]] = {}
        self._name, self._tensor = "", torch.empty(0)
        self._only_copies = True

    def watched(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Pass the tensors on; a copy belongs to the last one that was taken."""
        for self._name, self._tensor in tensors:
            self._routes[self._name] = []
            yield self._name, self._tensor

    def routes(self, tied: Iterable[Collection[str]]) -> dict[str, list[Route]] | None:
        """Return the routes by name, or None if they do not repeat the load.

        Args:
            tied: groups of names of one tensor, of which a load may ignore all but one.
        """
        ignored = {name for name, routes in self._routes.items() if not routes}
        for names in tied:
            if any(self._routes.get(name) for name in names):
                ignored.difference_update(names)
        return None if ignored or not self._only_copies else self._routes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.copy_.default:
            self._record(*args[:2])
        return func(*args, **(kwargs or {}))

    def _record(self, target: Tensor, source: Tensor) -> None:
        weight, is_taken = self._weights.get(_address(target)), _address(source) == _address(self._tensor)
        if weight is not None and is_taken and self._tensor.is_contiguous():
            self._routes[self._name].append(Route(weight, _region(source, self._tensor), _region(target, weight)))
        elif weight is not None or is_taken:
            self._only_copies = False  # the loader computes what it writes


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _region(part: Tensor, whole: Tensor) -> Region:
    return Region(tuple(part.shape), part.stride(), int(part.storage_offset() - whole.storage_offset()))
