"""Layout of a model's parameters: sharded over the ranks, or a full replica on each; and the choice between the two."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist

from verl_like.config.schema import FsdpConfig

# Up to this size of the parameters in float32, replicas are faster on CPU (measured up to 109 million parameters by
# benchmarks/update.py). With gradients and moments a rank needs four times as much memory.
MAX_REPLICA_BYTES = 2**29


class Layout(ABC):
    """What the passes of an engine require of a layout. Every method is collective."""

    is_sharded: bool  # whether a pass of one rank needs the other ranks
    group: dist.ProcessGroup | None = None  # ranks that together hold the whole model; None for all

    @abstractmethod
    def expect_backward(self, *, is_last: bool) -> None:
        """Announce, before a forward pass, whether it is the last one of this update with a backward pass."""

    @abstractmethod
    def reduce_gradients(self) -> None:
        """Put the sums over ranks in place after the last backward pass."""

    @abstractmethod
    def reshard(self) -> None:
        """Free gathered parameters: they remain after a forward pass without backward, and would be stale after an
        update.
        """


def is_cut(fsdp: FsdpConfig, *, device: torch.device, dtype: torch.dtype, is_frozen: bool, num_parameters: int) -> bool:
    """Return whether a model is sharded over the ranks.

    Args:
        dtype: dtype of the forward pass.
        is_frozen: whether the model has no float32 masters.

    Raises:
        ValueError: if replicas are requested that would compute in another dtype than that of their masters.
    """
    can_be_whole = is_frozen or dtype == torch.float32
    if fsdp.shard_size == "1" and not can_be_whole:
        raise ValueError(
            f"fsdp.shard_size is 1, and fsdp.param_dtype makes the forward pass {str(dtype).removeprefix('torch.')}, "
            "but a replica that learns computes in the float32 of its masters. Set fsdp.shard_size=all, or "
            "fsdp.param_dtype=float32."
        )
    if fsdp.shard_size != "auto" or fsdp.expert_parallel:
        return fsdp.shard_size != "1"
    is_small = num_parameters * torch.float32.itemsize <= MAX_REPLICA_BYTES
    return not (can_be_whole and is_small and device.type == "cpu")


def ranks_per_shard_group(fsdp: FsdpConfig, num_ranks: int) -> int:
    """Return the number of ranks over which a sharded model is sharded.

    Raises:
        ValueError: if it does not divide the number of ranks.
    """
    size = int(fsdp.shard_size) if fsdp.shard_size.isdecimal() else num_ranks
    if num_ranks % size:
        raise ValueError(
            f"fsdp.shard_size is {size}, which does not divide the {num_ranks} ranks. Set fsdp.shard_size=all, or a "
            "number that does, such as the GPUs of a node."
        )
    return size
