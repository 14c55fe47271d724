"""Split a model into FSDP groups, and control when they gather, reduce and free parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from verl_like.backends.fsdp.expert_parallel import ExpertShards
from verl_like.backends.fsdp.layout import Layout
from verl_like.backends.fsdp.models import ShardedModel
from verl_like.config.schema import FsdpConfig

# A layer below this size is gathered together with the rest: its own collective would cost more than the memory it
# saves.
MIN_LAYER_BYTES = 4 * 2**20
# Up to this size, gradients of all micro-batches accumulate unsharded and are reduced once; above it, memory matters
# more.
MAX_UNSHARDED_GRADIENT_BYTES = 2**30


class Sharding(Layout):
    """FSDP2 over a model: one group per decoder layer if layers are large enough, then one each for the embedding and
    the output layer unless they share their weights, and one for the rest.

    Args:
        ranks_per_group: number of ranks over which the model is sharded; each such group has a copy (HSDP), and
            gradients are summed over all groups.
        param_dtype: dtype of gathered parameters; gradients are reduced, and master weights kept, in float32.
    """

    is_sharded = True

    def __init__(
        self,
        module: ShardedModel,
        *,
        device: torch.device,
        ranks_per_group: int,
        fsdp: FsdpConfig,
        param_dtype: torch.dtype,
    ) -> None:
        mesh = _mesh(device, ranks_per_group)
        self.group = mesh.get_group(mesh.ndim - 1)
        self._experts = ExpertShards(module, mesh) if fsdp.expert_parallel else None
        on_their_ranks = set() if self._experts is None else set(self._experts.parameters())
        num_parameters = sum(p.numel() for p in module.parameters() if p not in on_their_ranks)
        self._is_reduced_once = num_parameters * torch.float32.itemsize <= MAX_UNSHARDED_GRADIENT_BYTES
        precision = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=torch.float32)
        # Copies of memory that is not page-locked would block the layers that run in the meantime.
        on_host = CPUOffloadPolicy(pin_memory=device.type != "cpu")
        offload = on_host if fsdp.cpu_offload else OffloadPolicy()
        cut = partial(
            fully_shard, mesh=mesh, mp_policy=precision, offload_policy=offload, ignored_params=on_their_ranks
        )
        layers: list[Any] = [
            layer for layer in module.decoder_layers() if _bytes(layer, param_dtype) >= MIN_LAYER_BYTES
        ]
        first_kept = len(layers) - kept_layers(fsdp, len(layers))
        for index, layer in enumerate(layers):
            cut(layer, reshard_after_forward=index < first_kept)
        # Their gradients are reduced while layers run, and their weights are gathered for less than a pass.
        ends = [part for part in module.embeddings() if layers and _bytes(part, param_dtype) >= MIN_LAYER_BYTES]
        for part in ends:
            cut(part, reshard_after_forward=part is ends[0])  # the last one's backward directly follows its forward
        # So does the root's; freeing it in between would only cause a second gather.
        cut(module, reshard_after_forward=False)
        self._groups: list[FSDPModule] = [child for child in module.modules() if isinstance(child, FSDPModule)]
        if fsdp.num_prefetched_layers:
            _prefetch(self._groups[0], [group for group in self._groups if group in layers], fsdp.num_prefetched_layers)
        for group in self._groups:
            # FSDP averages gradients over ranks. The loss is already divided by global counts, so the ranks' shares
            # must be summed.
            group.set_gradient_divide_factor(1.0)
            # Otherwise a factor requires a scaled sum, which gloo lacks.
            group.set_force_sum_reduction_for_comms(True)

    def expect_backward(self, *, is_last: bool) -> None:
        """Implement ``Layout.expect_backward``."""
        root = self._groups[0]
        now = is_last or not self._is_reduced_once
        root.set_requires_gradient_sync(now)
        root.set_is_last_backward(now)
        root.set_reshard_after_backward(now)

    def reduce_gradients(self) -> None:
        """Sum gradients of experts that stay on their ranks; the last backward pass has reduced all others."""
        if self._experts is not None:
            self._experts.sum_over_copies()

    def reshard(self) -> None:
        """Implement ``Layout.reshard``."""
        for group in self._groups:
            group.reshard()


def kept_layers(fsdp: FsdpConfig, num_layers: int) -> int:
    """Return the number of layers that stay gathered between forward and backward."""
    return num_layers if fsdp.num_kept_layers == "all" else min(int(fsdp.num_kept_layers), num_layers)


def _prefetch(root: FSDPModule, layers: list[FSDPModule], ahead: int) -> None:
    """Make each layer's gather prefetch the next ``ahead`` layers.

    Args:
        root: gathered before the first layer and never freed in between, so it is still gathered when backward starts
            with the last layer.
        layers: in the order of the forward pass.
    """
    root.set_modules_to_forward_prefetch(layers[:ahead])
    root.set_modules_to_backward_prefetch(layers[: -ahead - 1 : -1])
    for index, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[index + 1 : index + 1 + ahead])
        layer.set_modules_to_backward_prefetch(layers[max(index - ahead, 0) : index][::-1])


def _bytes(layer: nn.Module, dtype: torch.dtype) -> int:
    """Return the bytes that a gather of this layer makes; experts that stay on their ranks are sharded already."""
    return sum(p.numel() for p in layer.parameters() if not isinstance(p, DTensor)) * dtype.itemsize


def _mesh(device: torch.device, ranks_per_group: int) -> DeviceMesh:
    """Return a mesh of all ranks, with a first axis of copies if there are several groups."""
    groups = dist.get_world_size() // ranks_per_group
    if groups == 1:
        return init_device_mesh(device.type, (ranks_per_group,))
    return init_device_mesh(device.type, (groups, ranks_per_group), mesh_dim_names=("copies", "shards"))
