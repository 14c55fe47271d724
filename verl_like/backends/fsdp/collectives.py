"""The one gather that torch renamed between the versions this project runs on."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

try:
    from torch.distributed import all_gather_single
except ImportError:  # torch before 2.13
    from torch.distributed import all_gather_into_tensor as all_gather_single


def all_gather(mine: Tensor) -> Tensor:
    """[n] of every rank, equal n -> [ranks, n]."""
    gathered = torch.empty(dist.get_world_size() * mine.numel(), dtype=mine.dtype, device=mine.device)
    all_gather_single(gathered, mine)
    return gathered.view(-1, mine.numel())
