"""FsdpEngine: a model sharded with FSDP2, its forward passes over rows, and loading, gathering and export of
weights.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed._composable.checkpoint_activation import checkpoint

from verl_like.algorithms.types import BatchTotals
from verl_like.backends.base import EngineSettings
from verl_like.backends.fsdp.checkpoint import load_sharded_weights
from verl_like.backends.fsdp.collectives import is_first_of_node
from verl_like.backends.fsdp.frozen import FrozenWeights
from verl_like.backends.fsdp.gathering import CACHE_LINE_BYTES, Gather, gather_on
from verl_like.backends.fsdp.layout import Layout, is_cut, ranks_per_shard_group
from verl_like.backends.fsdp.loading import load_weights
from verl_like.backends.fsdp.micro_batches import MicroBatch, MicroBatchPlan, agree, resolve_max_tokens
from verl_like.backends.fsdp.models import ShardedModel
from verl_like.backends.fsdp.offload import HostWeights
from verl_like.backends.fsdp.replicas import Replicas
from verl_like.backends.fsdp.row_pictures import RowPictures
from verl_like.backends.fsdp.sequence_parallel import sequence_ranks_of, shared_rows
from verl_like.backends.fsdp.sharding import Sharding
from verl_like.backends.fsdp.weights import Named, export_folder, stream_full_tensors, whole_tensors
from verl_like.ops.attention_kernels import resolve_kernel
from verl_like.ops.packing import ModelInputs
from verl_like.protocol import DataProto

log = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Model = TypeVar("Model", bound=ShardedModel)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the torch dtype of a name; ``auto`` is float32 on CPU and bfloat16 on GPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return _DTYPES[name]


def recompute(layer: nn.Module) -> None:
    """Make a layer keep only its input for backward, which runs its forward again."""
    checkpoint(layer)


def recomputed_layers(gradient_checkpointing: str, device: torch.device, num_layers: int) -> int:
    """Return how many layers are recomputed in backward, the first ones.

    ``auto`` recomputes all on GPU, where activations take most memory, unless the plan of the run has replaced it by a
    number (``plan/choices.py``).
    """
    if gradient_checkpointing.isdecimal():
        return min(int(gradient_checkpointing), num_layers)
    is_on = gradient_checkpointing == "true" or (gradient_checkpointing == "auto" and device.type == "cuda")
    return num_layers * is_on


class FsdpEngine(ABC, Generic[Model]):
    """The ForwardEngine of :mod:`verl_like.backends.base` on FSDP2, over the default process group.

    The caller has initialised the process group, whose timeout applies to all collectives here, and on GPU has selected
    this process's device.

    Raises:
        ValueError: for a model that cannot be loaded or run as configured.
    """

    new_weights: Collection[str] = ()  # of the backbone: they are zero if no file has them
    num_teachers = 1  # among which rows choose; a pass has rows of one

    def __init__(self, settings: EngineSettings) -> None:
        self.settings, self.device = settings, settings.device
        self.sequence_ranks = sequence_ranks_of(settings.sequence_parallel_size, timeout_s=settings.timeout_s)
        self.gather: Gather | None = None  # created on first use
        self._on_host = HostWeights(self.device)
        self._weights: FrozenWeights | None = None  # created on first use
        model = settings.model
        self._dtype = resolve_dtype(settings.fsdp.param_dtype, self.device)
        kernel = resolve_kernel(model.attention, self.device, self._dtype) if model.remove_padding else None
        # Weights that never learn need no float32 masters: they are loaded in the dtype of the forward pass.
        has_adapters = bool(model.lora.rank) and not settings.is_frozen
        dtype = self._dtype if self._has_no_masters or has_adapters else torch.float32
        self.module = self._skeleton(kernel=kernel, dtype=dtype)
        if has_adapters:
            self.module.add_adapters(model.lora)
        self.module.set_requires_grad(is_frozen=settings.is_frozen)
        if not settings.is_frozen:
            layers = self.module.decoder_layers()
            # The last layers' activations are freed before the first layers are recomputed.
            for layer in layers[: recomputed_layers(model.gradient_checkpointing, self.device, len(layers))]:
                recompute(layer)
        self.layout = self._laid_out()
        on_host = settings.fsdp.cpu_offload
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            with self.module.original_layers():
                load_weights(
                    self.module.backbone,
                    model.path,
                    device=self.device,
                    dtype=dtype,
                    stay_on_host=on_host,
                    new=self.new_weights,
                )
        if self.module.adapters is not None:
            target_device = torch.device("cpu") if on_host else self.device
            self.module.adapters.initialise(device=target_device, seed=settings.seed)
        self.module.set_requires_grad(is_frozen=settings.is_frozen)  # replicas have new parameters after loading

    @property
    def _has_no_masters(self) -> bool:
        """Whether the weights have the dtype of the forward pass."""
        return self.settings.is_frozen and not self.settings.is_averaged

    def _laid_out(self) -> Layout:
        fsdp, num_parameters = self.settings.fsdp, sum(p.numel() for p in self.module.parameters())
        if not is_cut(
            fsdp, device=self.device, dtype=self._dtype, is_frozen=self._has_no_masters, num_parameters=num_parameters
        ):
            log.info("%s: a replica of all %d parameters on each rank", self.settings.model.path, num_parameters)
            return Replicas(self.module, self._gather_of_ranks)
        size = ranks_per_shard_group(fsdp, dist.get_world_size())
        return Sharding(self.module, device=self.device, ranks_per_group=size, fsdp=fsdp, param_dtype=self._dtype)

    @abstractmethod
    def _skeleton(self, *, kernel: str | None, dtype: torch.dtype) -> Model:
        """Build the model of the settings, without memory for its weights."""

    @property
    def makes_equal_passes(self) -> bool:
        """Whether each pass gathers weights from all ranks, which then need the same number of passes."""
        return self.layout.is_sharded

    @abstractmethod
    def outputs(self, batch: MicroBatch, *, entropy: bool) -> dict[str, Tensor]:
        """Run one forward pass with gradients and return what a loss reads, [b, T] each."""

    def plan(self, rows: DataProto) -> MicroBatchPlan:
        """Return the plan by which this rank, and those that share tokens with it, run these rows."""
        max_tokens = resolve_max_tokens(
            self.settings.max_tokens_per_micro_batch,
            self.device,
            hidden_size=self.module.hidden_size,
            learns=not self.settings.is_frozen,
        )
        return MicroBatchPlan(
            rows,
            max_tokens=max_tokens * self.settings.sequence_parallel_size,
            sequence_ranks=self.sequence_ranks,
            remove_padding=self.settings.model.remove_padding,
            share_prompts=self.settings.model.share_prompts,
            balance_by=self.settings.balance_by,
            device=self.device,
            num_teachers=self.num_teachers,
            pictures=self._pictures_of(rows),
        )

    def _pictures_of(self, rows: DataProto) -> RowPictures | None:
        """Return the pictures of these rows; None if the model reads none or the rows have none."""
        return None

    def auxiliary_loss(self, totals: BatchTotals) -> Tensor | None:
        """Return what the last pass adds to the loss of a mini-batch, whatever the loss; None for nothing."""
        return None

    def rebalance(self, *, has_moved: bool) -> dict[str, float]:
        """Return metrics of the last update's experts, whose balance may be changed; none of other models. Collective
        if the model has experts.

        Args:
            has_moved: whether the update has moved the weights; one that was skipped changes nothing else either.
        """
        return {}

    @torch.no_grad()
    def _forward(
        self, rows: DataProto, names: Sequence[str], run: Callable[[ModelInputs], Mapping[str, Tensor]]
    ) -> dict[str, NDArray[np.float32]]:
        """Run every pass and return [K] for each name, assembled from what ``run`` returns for the rows of each
        pass.
        """
        rows, own = shared_rows(rows, self.sequence_ranks)
        plan = self.plan(rows)
        results = {name: np.empty(plan.num_response_tokens, np.float32) for name in names}
        num_passes = agree(plan, device=self.device).num_passes if self.layout.is_sharded else plan.num_passes
        for batch in plan.passes(num_passes):
            found = run(batch.inputs)
            if len(batch.rows):
                slots = plan.response_slots(batch.rows)
                for name in names:
                    results[name][slots] = found[name][: len(slots)].cpu().numpy()
        self.layout.reshard()
        tokens = slice(*plan.response_bounds(own))
        return {name: found[tokens] for name, found in results.items()}

    def load(self, path: Path) -> None:
        """Implement ``ForwardEngine.load``; the number of ranks may differ."""
        load_sharded_weights(path, module=self.module)

    def copy_weights(self, other: object, *, weight: float = 1.0) -> None:
        """Implement ``ForwardEngine.copy_weights``."""
        assert isinstance(other, FsdpEngine), f"the weights of a {type(other).__name__} cannot be copied"
        other.layout.reshard()
        self.layout.reshard()
        dtype = self._dtype if self._has_no_masters else torch.float32
        self._frozen().copy(other.full_tensors(other.module, dtype), weight=weight)

    def begin_save_weights(self, path: Path) -> Callable[[], None]:
        """Implement ``ForwardEngine.begin_save_weights``."""
        self.layout.reshard()
        return self._frozen().begin_save(path)

    def load_saved_weights(self, path: Path) -> None:
        """Implement ``ForwardEngine.load_saved_weights``; the number of ranks may differ."""
        self._frozen().load(path)

    def _frozen(self) -> FrozenWeights:
        assert self.settings.is_frozen, "a model that learns has a learner, which saves and loads its weights"
        if self._weights is None:
            self._weights = FrozenWeights(self.module, self.device, timeout_s=self.settings.timeout_s)
        return self._weights

    def export_adapter(self, path: Path) -> None:
        """Implement ``ForwardEngine.export_adapter``, in float32 as the masters."""
        tensors = dict(self._adapter_tensors(torch.float32, is_kept=True))
        if dist.get_rank() == 0 and self.module.adapters is not None:
            self.module.adapters.write(path, tensors, base=self.settings.model.path)
        dist.barrier()

    def _adapter_tensors(self, dtype: torch.dtype, *, is_kept: bool = False) -> Iterator[tuple[str, Tensor]]:
        assert self.module.adapters is not None, "the adapter export was requested of a model without adapters"
        self.layout.reshard()
        return self._gathered(self.module.adapters.parameters(), dtype, is_kept=is_kept)

    def export(self, path: Path) -> None:
        """Implement ``ForwardEngine.export``, in the dtype of the forward pass."""
        export_folder(
            path,
            module=self.module,
            model=self.settings.model,
            dtype=self._dtype,
            tensors=self.full_tensors(self.module, self._dtype, is_kept=True),
        )

    def full_tensors(
        self, module: nn.Module, dtype: torch.dtype, *, is_kept: bool = False
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (name inside ``module``, tensor) of a part of the model, with adapters merged; collective.

        Args:
            is_kept: whether a tensor is valid until the next update, and not only until the next one is taken.
        """
        adapters = self.module.adapters  # a layer's weight is kept until its adapters arrive
        named = module.named_parameters(remove_duplicate=False)
        tensors = self._gathered(named, dtype, is_kept=is_kept or adapters is not None)
        yield from tensors if adapters is None else adapters.merged(tensors)

    def _gathered(self, parameters: Named, dtype: torch.dtype, *, is_kept: bool) -> Iterator[tuple[str, Tensor]]:
        if not self.layout.is_sharded:
            return whole_tensors(parameters, dtype)
        return stream_full_tensors(
            parameters, dtype=dtype, gather=self._gather_of_ranks(), bucket_bytes=self._bucket_bytes, is_kept=is_kept
        )

    def _gather_of_ranks(self) -> Gather:
        if self.gather is None:
            self.gather = gather_on(self.device, max_bytes=self._bucket_bytes, group=self.layout.group)
        return self.gather

    @property
    def _bucket_bytes(self) -> int:
        """Bucket size, a multiple of one cache line for every rank and at least that."""
        line = CACHE_LINE_BYTES * dist.get_world_size()
        return max(int(self.settings.sync_bucket_mib * 2**20) // line, 1) * line

    def offload(self) -> None:
        """Implement ``ForwardEngine.offload``; on CPU it frees only what is gathered."""
        self.layout.reshard()
        # Memory that torch caches is given back only when an engine wakes, which needs it.
        if self.device.type != "cpu" and self.settings.fsdp.offload_params:
            self._on_host.move_out(self.module)

    def onload(self) -> None:
        """Implement ``ForwardEngine.onload``; does nothing on CPU."""
        if self.device.type != "cpu" and self.settings.fsdp.offload_params:
            self._on_host.move_in(self.module)

    def succeeds_on_nodes(self, trial: Callable[[], bool]) -> bool:
        """Run ``trial`` on the first rank of each node, and return whether it returned true on all; collective."""
        return self.holds_everywhere(not is_first_of_node() or trial())

    def holds_everywhere(self, found: bool) -> bool:
        """Return whether ``found`` is true on all ranks; collective."""
        everywhere = torch.tensor(float(found), device=self.device)
        dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
        return bool(everywhere.item())
