"""Expert parallelism: each rank keeps whole experts of every layer, and tokens travel to the ranks of their experts.

FSDP gathers all experts of a layer on every rank for its passes. Here no expert is ever gathered: a rank sends each
token once for every expert that its router has chosen, computes its own experts for the tokens of all ranks, and sends
the results back. The experts are sharded tensors with the layout that FSDP gives them, so the optimiser, checkpoints
and weight sync handle them as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from transformers.integrations.moe import _grouped_linear  # transformers 5.19

from verl_like.backends.fsdp.models import ShardedModel
from verl_like.backends.fsdp.optim import local_shard
from verl_like.context import current
from verl_like.telemetry.heartbeat import Heartbeat

OTHERS = "the ranks that share the experts of a layer"
PACKED = {"gate_up_proj", "down_proj"}  # parameters of transformers' experts, [E, ., .] each


def experts_of(model: nn.Module) -> list[Any]:
    """Return the modules that hold the packed experts of a layer each, in the order of the layers.

    Only modules that transformers can compute by grouped products count; it sets ``is_transposed`` on them (5.19).
    """
    return [
        module
        for module in model.modules()
        if {name for name, _ in module.named_parameters(recurse=False)} == PACKED and "is_transposed" in vars(module)
    ]


class ExpertShards:
    """The experts of a model without weights yet, of which each rank of a shard group keeps an equal part.

    Args:
        module: its experts' parameters become sharded tensors, and their forward exchanges tokens.
        mesh: as FSDP uses it; experts are sharded over its last axis and replicated over the others.

    Raises:
        ValueError: the model has no packed experts, or a number of them that cannot be divided equally.
    """

    def __init__(self, module: ShardedModel, mesh: DeviceMesh) -> None:
        self._modules, self._mesh = experts_of(module), mesh
        if not self._modules:
            raise ValueError(
                f"fsdp.expert_parallel is true, but {type(module.backbone).__name__} has no packed experts without "
                f"biases ({' and '.join(sorted(PACKED))} of each layer). Set fsdp.expert_parallel=false."
            )
        exchange = Exchange(mesh.get_group(mesh.ndim - 1))
        for experts in self._modules:
            for name in sorted(PACKED):
                setattr(experts, name, _sharded(experts.get_parameter(name), mesh))
            vars(experts)["forward"] = partial(forward, experts, exchange)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the experts' parameters, which loading replaces."""
        for experts in self._modules:
            yield from experts.parameters(recurse=False)

    def sum_over_copies(self) -> None:
        """Sum gradients over the groups that have a copy of the experts each; FSDP does so for its own parameters.
        Collective.
        """
        if self._mesh.ndim == 1:
            return
        for parameter in self.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                with current(Heartbeat).waiting(OTHERS):
                    dist.all_reduce(local_shard(parameter.grad), group=self._mesh.get_group(0))


def _sharded(whole: nn.Parameter, mesh: DeviceMesh) -> nn.Parameter:
    """Return a parameter of which each rank has an equal number of experts, without memory as the whole one."""
    ranks = mesh.size(mesh.ndim - 1)
    if len(whole) % ranks:
        raise ValueError(
            f"fsdp.expert_parallel is true, but a layer has {len(whole)} experts, which cannot be divided equally "
            f"among {ranks} ranks. Set fsdp.shard_size to a divisor of {len(whole)}, or fsdp.expert_parallel=false."
        )
    assert whole.is_meta, "experts are sharded before their weights are loaded"
    own = torch.empty_like(whole[: len(whole) // ranks], requires_grad=False)
    placements = [*[Replicate()] * (mesh.ndim - 1), Shard(0)]
    shards = DTensor.from_local(own, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())
    return nn.Parameter(shards, requires_grad=whole.requires_grad)


class Exchange:
    """Carries states of tokens between the ranks of a group, each of which has an equal part of the experts."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def counts(self, chosen: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
        """Return numbers of states: [ranks, own experts] that this rank sends to each expert of each rank, and
        [ranks, own experts] that it gets from each rank for each of its own.

        Args:
            chosen: [S] int64 indices of experts.
        """
        counts = torch.bincount(chosen, minlength=num_experts)
        received = torch.empty_like(counts)
        with current(Heartbeat).waiting(OTHERS):
            dist.all_to_all_single(received, counts, group=self._group)
        ranks = dist.get_world_size(self._group)
        return counts.view(ranks, -1), received.view(ranks, -1)

    def rows(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send rows [S, H] to the ranks, ``sent[i]`` to rank i; return those of all ranks for this one."""
        found = rows.new_empty(sum(received), *rows.shape[1:])
        with current(Heartbeat).waiting(OTHERS):
            dist.all_to_all_single(found, rows.contiguous(), received, sent, group=self._group)
        return found


def forward(
    experts: Any, exchange: Exchange, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """Return [K, H], the outputs of each token's experts by their weights; the ranks of the group call it together.

    The operations do not depend on the tokens, so that a rank without any takes part in every exchange, and backward
    recomputes as many as forward made.

    Args:
        experts: a module of transformers, whose parameters are sharded over the group.
        hidden_states: [K, H].
        top_k_index: [K, k] int64 indices of experts.
        top_k_weights: [K, k].
    """
    top_k = top_k_index.shape[-1]
    chosen = top_k_index.reshape(-1)
    order = torch.argsort(chosen, stable=True)  # by expert, thus by rank
    to_others, of_others = exchange.counts(chosen, experts.num_experts)
    sent, received = to_others.sum(1).tolist(), of_others.sum(1).tolist()
    states: Tensor = _Exchanged.apply(hidden_states[order // top_k], sent, received, exchange)  # type: ignore[no-untyped-call]
    outputs = _own_experts(experts, states, of_others)
    outputs = _Exchanged.apply(outputs, received, sent, exchange)  # type: ignore[no-untyped-call]
    outputs = outputs * top_k_weights.reshape(-1)[order, None]
    return outputs[order.argsort()].view(-1, top_k, outputs.shape[-1]).sum(1).to(hidden_states.dtype)


def _own_experts(experts: Any, states: Tensor, of_others: Tensor) -> Tensor:
    """Return the outputs of this rank's experts for [S, H] states, which are sorted by rank and then by expert."""
    ranks, num_own = of_others.shape
    own = torch.arange(num_own, device=states.device).repeat(ranks)
    own = own.repeat_interleave(of_others.view(-1), output_size=len(states))
    order = torch.argsort(own, stable=True)
    ends = of_others.sum(0).cumsum(0).to(torch.int32)

    def product(of_experts: Tensor, name: str) -> Tensor:
        weights = local_shard(experts.get_parameter(name)).to(states.dtype)  # masters are float32
        found: Tensor = _grouped_linear(of_experts, weights, ends, is_transposed=experts.is_transposed)
        return found

    outputs = product(experts._apply_gate(product(states[order], "gate_up_proj")), "down_proj")
    return outputs[order.argsort()]


class _Exchanged(torch.autograd.Function):
    """Carries rows as ``Exchange.rows`` does; gradients travel back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], exchange: Exchange) -> Tensor:
        ctx.sent, ctx.received, ctx.exchange = sent, received, exchange
        return exchange.rows(rows, sent, received)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.exchange.rows(gradient, ctx.received, ctx.sent), None, None, None
