"""AdamW, its learning-rate schedule, and gradient clipping over shards."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from verl_like.config.schema import OptimConfig


def build_optimizer(module: nn.Module, config: OptimConfig) -> AdamW:
    """Return AdamW over the module's parameters; norms and biases (fewer than two axes) do not decay."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # The fused form runs one kernel for each parameter; foreach would need a temporary as large as all of them, and
    # takes several times as long on CPU.
    return AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def lr_factor(update: int, config: OptimConfig, total_updates: int) -> float:
    """Return the multiplier of the peak rate at ``update`` (0 is the first).

    Warm-up of W updates gives 1/(W+1), ..., W/(W+1): no update is wasted at rate 0, and the peak follows. Linear and
    cosine schedules then fall to ``min_lr_ratio``, reached when all ``total_updates`` are done.
    """
    warmup = config.warmup_steps or round(config.warmup_frac * total_updates)
    if update < warmup:
        return (update + 1) / (warmup + 1)
    if config.schedule == "constant":
        return 1.0
    progress = min((update - warmup) / max(total_updates - warmup, 1), 1.0)
    fall = progress if config.schedule == "linear" else (1 - math.cos(math.pi * progress)) / 2
    return 1.0 - (1.0 - config.min_lr_ratio) * fall


def build_schedule(optimizer: AdamW, config: OptimConfig, total_updates: int) -> LambdaLR:
    """Return the schedule of :func:`lr_factor`.

    Raises:
        ValueError: for a schedule that needs its end, which is not known.
    """
    if (config.schedule != "constant" or config.warmup_frac) and total_updates <= 0:
        raise ValueError(
            f"optim.schedule is {config.schedule} and optim.warmup_frac {config.warmup_frac}, but the number of "
            f"updates is {total_updates}; it must be known. Set trainer.total_training_steps, or "
            "optim.schedule=constant and optim.warmup_frac=0."
        )
    return LambdaLR(optimizer, lambda update: lr_factor(update, config, total_updates))


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's rows of a sharded tensor (shared storage), or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def clip_grad_norm(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scale gradients so that their global norm is at most ``max_norm``; gradients whose norm is not finite stay
    unchanged.

    This works on the local shards: one foreach norm and one all-reduce of a scalar, while DTensor operators would cost
    a dispatch per parameter. Either all parameters are sharded, over the last axis of one mesh, or none. Along that
    axis the squares of all shards add up to that of the whole; ranks of the other axis hold the same shards.

    Returns:
        The norm before clipping, equal on all ranks.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    shards = [local_shard(gradient) for gradient in gradients]
    norms = torch._foreach_norm(shards)
    square = torch.stack([norm.double() for norm in norms]).square().sum()
    if isinstance(gradients[0], DTensor):
        mesh = gradients[0].device_mesh
        dist.all_reduce(square, group=mesh.get_group(mesh.ndim - 1))
    norm = math.sqrt(square.item())
    if math.isfinite(norm) and norm > max_norm:
        torch._foreach_mul_(shards, max_norm / norm)
    return norm
