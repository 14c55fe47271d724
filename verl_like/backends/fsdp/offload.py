"""Keep weights and optimiser state in host memory, and move them to the accelerator when they are needed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from verl_like.backends.fsdp.optim import local_shard


class HostWeights:
    """The weights of a module in page-locked host memory while no stage needs them.

    The memory is allocated at the first move and kept, as for :class:`HostCopies`.

    Args:
        device: the accelerator.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: dict[Tensor, Tensor] = {}  # parameter -> host memory of this rank's shard

    @property
    def memory(self) -> list[Tensor]:
        """The host memory allocated so far."""
        return list(self._memory.values())

    @torch.no_grad()
    def move_out(self, module: nn.Module) -> None:
        """Move the weights to host memory, and buffers too."""
        module._apply(self._on_host)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # otherwise an unfinished copy could be read

    def move_in(self, module: nn.Module) -> None:
        """Move the weights to the accelerator; later work on its stream waits for the copy, this process does not."""
        module.to(self._device, non_blocking=True)

    def _on_host(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):  # small, and another object after each move
            return tensor.to("cpu")
        shard = local_shard(tensor)
        if shard.device.type != self._device.type:
            return tensor
        if tensor not in self._memory:
            self._memory[tensor] = locked_like(shard)
        memory = self._memory[tensor].copy_(shard, non_blocking=True)
        if not isinstance(tensor, DTensor):
            return memory
        # ``from_local`` would move it to the device type of the mesh.
        return DTensor(memory, tensor._spec, requires_grad=tensor.requires_grad)


class HostCopies:
    """The moments of an optimiser in page-locked host memory, to which copies are several times as fast.

    The memory is allocated at the first move and kept, because locking takes longer than a copy. Step counters stay on
    the device on which the optimiser created them.

    Args:
        device: the accelerator.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[tuple[Tensor, str], Tensor] = {}  # parameter and moment -> host memory

    @property
    def buffers(self) -> list[Tensor]:
        """The host memory allocated so far."""
        return list(self._buffers.values())

    @torch.no_grad()
    def move_out(self, optimizer: Optimizer) -> None:
        """Move the moments to host memory."""
        moved = [
            (shard, self._buffer_of(key, shard))
            for key, shard in _moments(optimizer)
            if shard.device.type == self._device.type
        ]
        for shard, memory in moved:
            memory.copy_(shard, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # otherwise an unfinished copy could be read
        for shard, memory in moved:
            shard.data = memory

    @torch.no_grad()
    def move_in(self, optimizer: Optimizer) -> None:
        """Move the moments to the accelerator; later work on its stream waits for the copy, this process does not."""
        for _, shard in _moments(optimizer):
            shard.data = shard.to(self._device, non_blocking=True)

    def _buffer_of(self, key: tuple[Tensor, str], shard: Tensor) -> Tensor:
        if key not in self._buffers:
            self._buffers[key] = locked_like(shard)
        return self._buffers[key]


def _moments(optimizer: Optimizer) -> Iterator[tuple[tuple[Tensor, str], Tensor]]:
    """Yield this rank's shards, as the optimiser holds them, by parameter and name."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim > 0:
                yield (parameter, name), local_shard(value)


def locked_like(tensor: Tensor) -> Tensor:
    """Return host memory of the same shape, page-locked if ``tensor`` is on an accelerator.

    ``pin_memory`` is not used, because its allocator rounds sizes up to a power of two.

    Raises:
        RuntimeError: if the memory cannot be locked; CUDA gives the reason.
    """
    if tensor.device.type != "cuda" or not tensor.nbytes:
        return torch.empty_like(tensor, device="cpu")
    return locked(tensor.nbytes).view(tensor.dtype).view(tensor.shape)


def locked(num_bytes: int) -> Tensor:
    """Return page-locked host memory, [num_bytes] uint8, which is unlocked before it is freed.

    Raises:
        RuntimeError: if the memory cannot be locked; CUDA gives the reason.
    """
    memory, cudart = np.empty(num_bytes, np.uint8), torch.cuda.cudart()
    torch.cuda.check_error(cudart.cudaHostRegister(memory.ctypes.data, num_bytes, 0))
    unlocking = weakref.finalize(memory, cudart.cudaHostUnregister, memory.ctypes.data)
    unlocking.atexit = False  # the process's end unlocks it
    return torch.from_numpy(memory)
