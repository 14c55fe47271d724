"""Load weights into an engine on CPU, on which vLLM packs each linear layer for oneDNN and drops the unpacked weights.

vLLM's own reload creates every layer anew, counts elements as they arrive and copies the result into the old layer.
Here a layer is packed as soon as it is complete, and its memory is reused for the next one; all other weights are
written in place. Checked against vllm 0.32.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs


class PackedWeights:
    """Loads weights into a model that vLLM has built on CPU.

    The number of parts of a layer in a checkpoint is counted in the first load, which therefore packs nothing before
    its end. An embedding keeps its unpacked weights, and is packed by the first product with it: an input embedding is
    only looked up.
    """

    def __init__(self, model: Any) -> None:  # a module with attributes of vLLM
        assert self.fit(model), "vLLM transforms this model's weights in ways that this class does not"
        self._model = model
        self._linears = [layer for layer in model.modules() if _method(layer) is UnquantizedLinearMethod]
        self._embeddings = [layer for layer in model.modules() if _method(layer) is UnquantizedEmbeddingMethod]
        self._num_parts: Counter[Any] = Counter()

    @staticmethod
    def fit(model: Any) -> bool:
        """Return whether this class covers everything that vLLM does to this model's weights."""
        return all(_is_known(layer) for layer in model.modules())

    @torch.no_grad()
    def load(self, weights: Iterable[tuple[str, Tensor]], *, num_weights: int) -> None:
        """Load weights by their names in the Hugging Face model, in any order.

        Args:
            num_weights: number of weights of the whole model. The numbers of parts are recorded only if all of them
                arrive.
        """
        seen: Counter[Any] = Counter()
        counted = _Counted(weights)
        for layer in self._linears:
            self._open(layer, seen)
        self._model.load_weights(counted)
        if counted.number == num_weights:
            self._num_parts = seen
        for layer in self._linears:
            if layer.weight.numel():
                _pack(layer)
        for layer in self._embeddings:
            layer.cpu_linear = _packing(layer)

    def _open(self, layer: Any, seen: Counter[Any]) -> None:
        """Give the layer a parameter of the right shape, without memory until its first part arrives."""
        blank = _blank(layer)
        fill = inspect.unwrap(blank.weight_loader)  # vLLM's own reload would have left it wrapped

        def load_part(parameter: Tensor, *part: Any, **more: Any) -> None:
            if not seen[layer]:
                parameter.data = torch.empty(parameter.shape, dtype=parameter.dtype)
            fill(parameter, *part, **more)
            seen[layer] += 1
            if seen[layer] == self._num_parts[layer]:
                _pack(layer)
                if layer.weight is not parameter:  # equal if nothing was packed: then the layer multiplies by it
                    parameter.data = torch.empty(0, dtype=parameter.dtype)  # vLLM holds it until the last layer

        blank.weight_loader = load_part
        layer.register_parameter("weight", blank)


class _Counted:
    """Yields items and counts them."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items, self.number = items, 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self.number += 1
            yield item


def _method(layer: Any) -> type | None:
    method = getattr(layer, "quant_method", None)
    return None if method is None else type(method)


def _is_known(layer: Any) -> bool:
    if _method(layer) is UnquantizedLinearMethod:
        return _described(layer).ndim == 2
    if hasattr(layer, "process_weights_after_loading") and type(layer) is not Attention:
        return False
    return _method(layer) in (UnquantizedEmbeddingMethod, None)


def _described(layer: Any) -> Tensor:
    """Return the weight that a checkpoint fills, as a tensor of vLLM's own class without memory."""
    found: Tensor = get_layerwise_info(layer).restore_metadata[0]["weight"]
    return found


def _blank(layer: Any) -> Any:
    """Return a parameter of that class, in one element of memory."""
    described = _described(layer)
    blank = torch.empty(1, dtype=described.dtype).expand(described.shape)
    blank.__class__ = described.__class__
    vars(blank).update(vars(described))
    return restore_layer_refs(blank, layer)


def _pack(layer: Any) -> None:
    layer.cpu_linear = None  # free the memory of the previous packed weights
    layer.quant_method.process_weights_after_loading(layer)


def _packing(layer: Any) -> Any:
    """Return a product with this layer that packs it first."""

    def product(*inputs: Any) -> Tensor:
        _pack(layer)
        found: Tensor = layer.cpu_linear(*inputs)
        return found

    return product
