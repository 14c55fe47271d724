"""Load weights into an engine on CPU, on which vLLM packs each linear layer for oneDNN and drops the unpacked weights.

vLLM's own reload creates every layer anew, counts elements as they arrive and copies the result into the old layer.
Here only the first load goes through vLLM's loaders, and later ones repeat its copies (``routes.py``). A layer is
packed as soon as it is complete. All other weights are written in place, among them those of small layers, which need
no packing (``unpacked.py``). Checked against vllm 0.32.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.attention import Attention, MMEncoderAttention
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs

from verl_like.backends.vllm.routes import Route, RouteRecorder
from verl_like.backends.vllm.unpacked import LinearFunction, UnpackedProducts

Write = Callable[[Tensor], object]  # what becomes of a tensor of a checkpoint


class PackedWeights:
    """Loads weights into a model that vLLM has built on CPU.

    The first load packs nothing before its end. An embedding keeps its unpacked weights, and is packed by the first
    product with it: an input embedding is only looked up.

    Args:
        model: module with attributes of vLLM.
        tied: first name of a tensor -> its other names.
        num_passes: largest number of forward passes that a response takes.
    """

    def __init__(self, model: Any, tied: Mapping[str, Collection[str]], *, num_passes: int) -> None:
        assert self.fit(model), "vLLM transforms this model's weights in ways that this class does not"
        self._model, self._tied = model, [{name, *others} for name, others in tied.items()]
        self._linears = [layer for layer in model.modules() if _method(layer) is UnquantizedLinearMethod]
        self._embeddings = [layer for layer in model.modules() if _method(layer) is UnquantizedEmbeddingMethod]
        self._writes: dict[str, list[Write]] = {}  # by name, once they are known
        self._packings: list[_Packing] = []
        self._unpacked = UnpackedProducts(num_passes)

    @staticmethod
    def fit(model: Any) -> bool:
        """Return whether this class covers everything that vLLM does to this model's weights."""
        return all(_is_known(layer) for layer in model.modules())

    @torch.no_grad()
    def load(self, weights: Iterable[tuple[str, Tensor]], *, num_weights: int) -> None:
        """Load weights by their names in the Hugging Face model, in any order.

        Args:
            num_weights: number of weights of the whole model. Later loads repeat the copies of the first one in which
                all of them arrive.
        """
        if self._writes:
            for packing in self._packings:
                packing.begin()
            for name, tensor in weights:
                for write in self._writes[name]:
                    write(tensor)
        else:
            routes = self._load_by_vllm(weights)
            self._pack_all(routes if len(routes) == num_weights else {})
        for layer in self._embeddings:
            layer.cpu_linear = _packing_product(layer)

    def _load_by_vllm(self, weights: Iterable[tuple[str, Tensor]]) -> dict[str, list[Route]]:
        """Return the routes of all names, or nothing if routes do not repeat the load."""
        for layer in self._linears:
            layer.register_parameter("weight", _blank(layer))
        recorder = RouteRecorder(chain(self._model.parameters(), self._model.buffers()))
        with recorder:
            self._model.load_weights(recorder.watched(weights))
        routes = recorder.routes(self._tied) or {}
        written: Counter[int] = Counter()
        for route in chain.from_iterable(routes.values()):
            written[id(route.weight)] += route.target.of(route.weight).numel()
        is_whole = all(written[id(layer.weight)] == layer.weight.numel() for layer in self._linears)
        return routes if is_whole else {}

    def _pack_all(self, routes: dict[str, list[Route]]) -> None:
        """Pack the layers that need it, and keep what repeats these routes."""
        num_parts = Counter(id(route.weight) for route in chain.from_iterable(routes.values()))
        packings: dict[int, _Packing] = {}
        for layer in self._linears:
            weight = layer.weight
            _pack(layer)
            if layer.weight is not weight and not self._unpack(layer, weight):
                packings[id(weight)] = _Packing(layer, weight, num_parts[id(weight)])
                weight.data = torch.empty(0, dtype=weight.dtype)  # the routes refer to it
        self._embeddings = [layer for layer in self._embeddings if not self._unpack(layer, layer.weight)]
        self._packings = list(packings.values())

        def write(route: Route) -> Write:
            packing = packings.get(id(route.weight))
            return partial(_write, route) if packing is None else partial(packing.take, route)

        self._writes = {name: [write(route) for route in found] for name, found in routes.items()}

    def _unpack(self, layer: Any, weight: Tensor) -> bool:
        """Let a layer multiply by this weight unpacked, if it saves time and changes no bit; return whether it does."""

        def packed() -> LinearFunction:
            layer.register_parameter("weight", weight)
            _pack(layer)
            product: LinearFunction = layer.cpu_linear
            return product

        has_bias = getattr(layer, "bias", None) is not None
        found = self._unpacked.find(weight, packed, has_bias=has_bias)
        if found is not None:
            layer.register_parameter("weight", weight)
            layer.cpu_linear = found
        return found is not None


class _Packing:
    """A layer that is packed when all parts of its weight have arrived."""

    def __init__(self, layer: Any, weight: Tensor, num_parts: int) -> None:
        self._layer, self._shape, self._dtype, self._num_parts = layer, weight.shape, weight.dtype, num_parts
        self.begin()

    def begin(self) -> None:
        self._weight, self._num_left = torch.empty(0), self._num_parts

    def take(self, route: Route, tensor: Tensor) -> None:
        """Take the part of the tensor at this route."""
        part = route.source.of(tensor)
        is_whole = self._num_parts == 1 and part.dtype == self._dtype and part.is_contiguous()
        if is_whole:
            self._weight = part.view(self._shape)
        else:
            if self._num_left == self._num_parts:
                self._weight = torch.empty(self._shape, dtype=self._dtype)
            route.target.of(self._weight).copy_(part)
        self._num_left -= 1
        if not self._num_left:
            self._layer.weight = weight = nn.Parameter(self._weight, requires_grad=False)
            self._weight = torch.empty(0)
            _pack(self._layer)
            if self._layer.weight is weight and is_whole:  # it was not packed, and the memory is the sender's
                weight.data = weight.data.clone()


def _write(route: Route, tensor: Tensor) -> None:
    route.target.of(route.weight.data).copy_(route.source.of(tensor))


def _method(layer: Any) -> type | None:
    method = getattr(layer, "quant_method", None)
    return None if method is None else type(method)


def _is_known(layer: Any) -> bool:
    if _method(layer) is UnquantizedLinearMethod:
        return _described(layer).ndim == 2
    if hasattr(layer, "process_weights_after_loading") and type(layer) not in (Attention, MMEncoderAttention):
        return False
    return _method(layer) in (UnquantizedEmbeddingMethod, None)


def _described(layer: Any) -> Tensor:
    """Return the weight that a checkpoint fills, as a tensor of vLLM's own class without memory."""
    found: Tensor = get_layerwise_info(layer).restore_metadata[0]["weight"]
    return found


def _blank(layer: Any) -> Any:
    """Return a parameter of that class, to be filled."""
    described = _described(layer)
    blank: Any = torch.empty(described.shape, dtype=described.dtype)
    blank.__class__ = described.__class__
    vars(blank).update(vars(described))
    blank.weight_loader = inspect.unwrap(blank.weight_loader)  # vLLM's own reload would have left it wrapped
    return restore_layer_refs(blank, layer)


def _pack(layer: Any) -> None:
    layer.cpu_linear = None  # free the memory of the previous packed weights
    layer.quant_method.process_weights_after_loading(layer)


def _packing_product(layer: Any) -> Any:
    """Return a product with this layer that packs it first."""

    def product(*inputs: Any) -> Tensor:
        _pack(layer)
        found: Tensor = layer.cpu_linear(*inputs)
        return found

    return product
