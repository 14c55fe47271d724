"""Keep optimiser state in host memory, and move it to the accelerator for the optimiser's step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer

from verl_like.backends.fsdp.optim import local_shard


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
    memory = torch.empty_like(tensor, device="cpu")
    if tensor.device.type == "cuda" and memory.nbytes:
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))
    return memory
