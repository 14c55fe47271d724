"""A model that every rank has whole: no gathers, one sum of gradients for each update, and a step on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from verl_like.backends.fsdp.layout import Layout
from verl_like.telemetry.beacon import BEACON

# Gradients are summed so many bytes at a time: fewer calls than one for each, without a copy of them all.
BUCKET_BYTES = 64 * 2**20


class Replicas(Layout):
    """The ranks' replicas stay equal because they start equal and take the same steps."""

    is_sharded = False

    def __init__(self, module: nn.Module) -> None:
        self._module = module  # not its parameters, which are others when they are loaded

    def expect_backward(self, *, is_last: bool) -> None:
        """Nothing: gradients of all passes add up where they are."""

    @torch.no_grad()
    def reduce_gradients(self) -> None:
        """Sum them over ranks; one that only some ranks have, such as that of an expert, is zero on the others."""
        if dist.get_world_size() == 1:
            return
        with BEACON.waiting("all ranks, for their gradients"):
            parameters = [parameter for parameter in self._module.parameters() if parameter.requires_grad]
            has_any = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
            dist.all_reduce(has_any, op=dist.ReduceOp.MAX)
            for parameter, is_there in zip(parameters, has_any.tolist(), strict=True):
                if is_there and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
                flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
                dist.all_reduce(flat)
                sums = flat.split([gradient.numel() for gradient in bucket])
                for gradient, total in zip(bucket, sums, strict=True):
                    gradient.copy_(total.view_as(gradient))

    def reshard(self) -> None:
        """Nothing: nothing was gathered."""


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """In their order, as many together as fit; a larger one alone."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and sum(other.nbytes for other in bucket) + gradient.nbytes > BUCKET_BYTES:
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
