"""Layout with the whole model on every rank: no gathers, one sum of gradients for each update, and a step on every
rank.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from verl_like.backends.fsdp.gathering import Gather
from verl_like.backends.fsdp.layout import Layout
from verl_like.context import current
from verl_like.telemetry.heartbeat import Heartbeat


class Replicas(Layout):
    """Replicas that stay equal because they start equal and take the same steps.

    Args:
        gather: returns the gather that sums gradients; collective.
    """

    is_sharded = False

    def __init__(self, module: nn.Module, gather: Callable[[], Gather]) -> None:
        self._module, self._gather = module, gather  # not its parameters, which loading replaces

    def expect_backward(self, *, is_last: bool) -> None:
        """Do nothing: gradients of all passes accumulate in place."""

    def reduce_gradients(self) -> None:
        """Sum gradients over ranks; one that only some ranks have, such as that of an expert, is zero on the others."""
        if dist.get_world_size() == 1:
            return
        parameters = [parameter for parameter in self._module.parameters() if parameter.requires_grad]
        has_any = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
        with current(Heartbeat).waiting("all ranks, before their gradients are summed"):
            dist.all_reduce(has_any, op=dist.ReduceOp.MAX)
        for parameter, has_gradient in zip(parameters, has_any.tolist(), strict=True):
            if has_gradient and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._gather().sum([parameter.grad for parameter in parameters if parameter.grad is not None])

    def reshard(self) -> None:
        """Do nothing: nothing was gathered."""
