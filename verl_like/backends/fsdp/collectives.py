"""Collectives: an all-gather, which torch renamed between supported versions, a sum of named scalars, and which rank
is the first of its node.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

try:
    from torch.distributed import all_gather_single
except ImportError:  # torch before 2.13
    from torch.distributed import all_gather_into_tensor as all_gather_single


def all_gather(own: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Gather [n] of every rank (of a group), with equal n, into [ranks, n]."""
    gathered = torch.empty(dist.get_world_size(group) * own.numel(), dtype=own.dtype, device=own.device)
    all_gather_single(gathered, own, group=group)
    return gathered.view(-1, own.numel())


def is_first_of_node() -> bool:
    """Return whether this rank is the first on its machine; collective."""
    nodes: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(nodes, socket.gethostname())
    return nodes.index(socket.gethostname()) == dist.get_rank()


def summed(shares: Mapping[str, Tensor], *, ranks_with_any: Sequence[int], device: torch.device) -> dict[str, float]:
    """Return each scalar's sum over ranks, by name.

    Args:
        shares: this rank's scalars. A rank without any receives the names from a rank that has them.
        ranks_with_any: the ranks that have scalars, equal on all ranks.
    """
    if not ranks_with_any:
        return {}
    names = sorted(shares)
    if len(ranks_with_any) < dist.get_world_size():
        shared: list[list[str] | None] = [names]
        dist.broadcast_object_list(shared, src=ranks_with_any[0], device=device)
        assert shared[0] is not None, "no rank sent the names of its metrics"
        names = shared[0] if not shares else names
    # If names differed between ranks, unrelated scalars would be added; sum a checksum of the names to detect that.
    checksum = float(zlib.crc32("\n".join(names).encode()))
    sums = torch.zeros(len(names) + 1, dtype=torch.float64, device=device)
    if shares:
        sums[:-1] = torch.stack([shares[name] for name in names])
    sums[-1] = checksum
    dist.all_reduce(sums)
    values = sums.tolist()
    assert values.pop() == checksum * dist.get_world_size(), f"ranks have different metrics; this rank has {names}"
    return dict(zip(names, values, strict=True))
