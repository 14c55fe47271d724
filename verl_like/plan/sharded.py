"""Weights, gradients and optimiser state of a sharded model in bytes, and what FSDP gathers, computed from its shape.

The terms follow the code that allocates them, ``backends/fsdp``.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.backends.fsdp.sharding import MAX_UNSHARDED_GRADIENT_BYTES, MIN_LAYER_BYTES, kept_layers
from verl_like.config.schema import FsdpConfig
from verl_like.ops.tiles import FLOAT32
from verl_like.plan.shape import ExpertSizes, ModelShape


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardedWeights:
    """A model on ``ranks`` ranks, sharded or replicated.

    Args:
        is_cut: whether the model is sharded over the ranks; else each rank has a replica.
        is_averaged: whether frozen weights are float32, to be averaged with others.
        has_adapters: whether only adapters are trained (``model.lora``).
        itemsize: bytes per element in forward and backward.
        is_gpu: whether it runs on a GPU, where the next layer is gathered while one runs.
        is_fused: whether norms and feed-forward parts are single kernels, which keep fewer tensors for backward.
    """

    shape: ModelShape
    ranks: int
    itemsize: int
    is_gpu: bool
    fsdp: FsdpConfig
    is_cut: bool = True
    is_frozen: bool = False
    is_averaged: bool = False
    has_adapters: bool = False
    is_fused: bool = False

    @property
    def num_learning(self) -> int:
        """Number of trained parameters, which have master weights, moments and gradients."""
        if self.is_frozen:
            return 0
        shape = self.shape
        return shape.num_adapter_parameters if self.has_adapters else shape.num_parameters - shape.num_fixed_parameters

    @property
    def own_experts(self) -> ExpertSizes | None:
        """Sizes of the experts if they stay on their ranks, and are not gathered."""
        return self.shape.experts if self.fsdp.expert_parallel and self.is_cut else None

    @property
    def num_gathered(self) -> int:
        """Number of parameters that FSDP gathers, in all groups."""
        return self.shape.num_parameters - (self.own_experts.num_parameters if self.own_experts else 0)

    @property
    def num_gathered_learning(self) -> int:
        """Number of trained parameters among those that FSDP gathers."""
        own = self.own_experts.num_parameters if self.own_experts and not self.has_adapters else 0
        return max(self.num_learning - own, 0)

    @property
    def _gathered_of_layer(self) -> int:
        """Parameters of the largest decoder layer that FSDP gathers."""
        return self.own_experts.num_rest_of_layer if self.own_experts else self.shape.num_layer_parameters

    @property
    def _learning_of_layer(self) -> float:
        """Trained parameters in a decoder layer that FSDP gathers; adapters exist only there."""
        return self.num_learning / self.shape.num_layers if self.has_adapters else self._gathered_of_layer

    @property
    def _share_of_own_experts(self) -> float:
        """Share of own experts in the trained parameters."""
        return 1 - self.num_gathered_learning / self.num_learning if self.num_learning else 0.0

    @property
    def _new_of_experts(self) -> float:
        """Bytes of the gradients of a layer's own experts before they are added to others."""
        if self.own_experts is None or self.has_adapters:
            return 0.0
        return FLOAT32 * self.own_experts.num_of_layer / self.ranks

    @property
    def _embedding(self) -> int:
        """Parameters of the embedding if it has a separate group."""
        return self._if_separate(self.shape.num_embedding_parameters)

    @property
    def _output(self) -> int:
        """Parameters of the output layer if it has a separate group."""
        return self._if_separate(self.shape.num_output_parameters)

    @property
    def _gathered_output(self) -> float:
        """Bytes of the gathered output layer, and of the buffer of its gather, which FSDP2 keeps until the next one."""
        return float(self.itemsize * self._output * (1 + (self.ranks > 1)))

    def _if_separate(self, num_parameters: int) -> int:
        is_large = num_parameters * self.itemsize >= MIN_LAYER_BYTES
        return num_parameters if self.is_cut and self.has_layer_groups and is_large else 0

    @property
    def _rest(self) -> int:
        """Parameters outside layers that have no separate group."""
        return self.shape.num_root_parameters - self._embedding - self._output - sum(self._vision_groups)

    @property
    def _vision_groups(self) -> list[int]:
        """Parameters of each part of what reads pictures that has a separate group."""
        return [size for size in self.shape.vision_parts if self.is_cut and size * self.itemsize >= MIN_LAYER_BYTES]

    @property
    def _learning_of_root(self) -> float:
        return 0 if self.has_adapters else max(self._rest - self.shape.num_fixed_parameters, 0)

    @property
    def is_on_host(self) -> bool:
        """Whether weights, gradients and moments are in host memory in all stages."""
        return self.fsdp.cpu_offload and self.is_gpu and self.is_cut

    @property
    def gradients(self) -> float:
        """Bytes of this rank's gradient shards, in float32."""
        return FLOAT32 * self.num_learning / self._pieces

    @property
    def _pieces(self) -> int:
        return self.ranks if self.is_cut else 1

    @property
    def weights(self) -> float:
        """Bytes of this rank's weight shards: float32 master weights, and frozen weights in the pass's dtype."""
        whole = self.shape.num_parameters
        if not self.is_frozen and not self.has_adapters:
            return FLOAT32 * whole / self._pieces
        itemsize = FLOAT32 if self.is_averaged else self.itemsize
        return (itemsize * whole + FLOAT32 * self.num_learning) / self._pieces

    @property
    def optimizer(self) -> float:
        """Bytes of this rank's AdamW moments, in float32."""
        return 2 * FLOAT32 * self.num_learning / self._pieces

    @property
    def learning(self) -> float:
        """Bytes of this rank's part of a checkpoint: master weights and moments."""
        return FLOAT32 * self.num_learning / self._pieces + self.optimizer

    @property
    def has_layer_groups(self) -> bool:
        return self._gathered_of_layer * self.itemsize >= MIN_LAYER_BYTES

    @property
    def root(self) -> float:
        """Bytes gathered for a whole pass: parameters without a separate group; all if layers are small."""
        if not self.is_cut:
            return 0.0
        layers = 0 if self.has_layer_groups else self.num_gathered - self.shape.num_root_parameters
        return float(self.itemsize * (self._rest + layers))

    @property
    def _buffer(self) -> float:
        """Bytes of the buffer of the only group's gather, which no later one takes; it is freed after forward."""
        is_only = not (self.has_layer_groups or self._vision_groups)
        return self.root * (is_only and self.ranks > 1)

    @property
    def gathered(self) -> float:
        """Bytes gathered while layers run: the root and some layers; at least one has the buffer of a gather."""
        ahead = self.fsdp.num_prefetched_layers or self.is_gpu or self.ranks > 1
        return self._with_layers(max(1 + ahead, kept_layers(self.fsdp, self.shape.num_layers)))

    @property
    def _between_layers(self) -> float:
        """Bytes gathered between the layers' forward and backward passes."""
        return self._with_layers(kept_layers(self.fsdp, self.shape.num_layers))

    @property
    def kept_gathered(self) -> float:
        """Bytes that stay gathered after a forward pass: the root and the output layer."""
        return self.root + self._gathered_output * self.is_cut

    @property
    def _with_vision(self) -> float:
        """Bytes gathered while the model looks at pictures: the root, and two parts of what reads them."""
        return self.root + 2.0 * self.itemsize * max(self._vision_groups, default=0)

    def _with_layers(self, count: int) -> float:
        layers = min(count, self.shape.num_layers) * self.is_cut * self.has_layer_groups
        return self.root + self.itemsize * layers * self._gathered_of_layer

    @property
    def is_reduced_once(self) -> bool:
        """Whether gradients of all passes accumulate unsharded and are reduced once."""
        return FLOAT32 * self.num_gathered <= MAX_UNSHARDED_GRADIENT_BYTES
