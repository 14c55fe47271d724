"""Copies of a learner's state in host memory, which are written while training continues."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from verl_like.backends.fsdp.offload import locked_like

MIN_LOCKED_BYTES = 2**16  # smaller tensors take longer to lock than to copy


class StateCopies:
    """The copies of one checkpoint at a time; the next checkpoint overwrites them.

    torch's ``async_save`` is not used: the interpreter waits for its threads at exit, however long they take, and its
    stagers lock memory anew for every tensor that has moved, or round sizes up to a power of two (2.13).

    Args:
        device: device of the state. For an accelerator the memory of copies is page-locked and kept, because locking it
            takes longer than a copy.
        timeout_s: timeout of collectives among the ranks that write.
    """

    def __init__(self, device: torch.device, *, timeout_s: float) -> None:
        self._device = device
        self._buffers: dict[str, Tensor] = {}
        # A separate group: its collectives run on another thread, in parallel with those of the updates.
        self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))

    @torch.no_grad()
    def of(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state with a copy of each tensor, or of this rank's shard of it; the copy shares no memory with
        the state.
        """
        copied: dict[str, Any] = self._copy("", state)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # otherwise an unfinished copy could be written
        return copied

    def _copy(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._copy(f"{name}/{key}", item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copy(f"{name}/{index}", item) for index, item in enumerate(value))
        if isinstance(value, DTensor):
            copied = cast(DTensor, value.detach())
            # ``from_local`` would move the copy to the device type of the mesh.
            copied._local_tensor = self._copy(name, value.to_local())
            return copied
        if isinstance(value, Tensor):
            return self._buffer_of(name, value).copy_(value, non_blocking=True)
        return deepcopy(value)

    def _buffer_of(self, name: str, tensor: Tensor) -> Tensor:
        if self._device.type == "cpu" or tensor.nbytes < MIN_LOCKED_BYTES:
            return torch.empty_like(tensor, device="cpu")
        if name not in self._buffers:
            self._buffers[name] = locked_like(tensor)
        return self._buffers[name]
