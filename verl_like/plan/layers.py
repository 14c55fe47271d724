"""Live bytes of a model's pass on the meta device, layer by layer.

One layer of each kind runs, and the model without its layers: embeddings, what reads pictures, and the last norm.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from verl_like.backends.fsdp.engine import recompute
from verl_like.backends.pictures import forbidden_ids, is_of_vision, unused_parameters
from verl_like.ops.attention import register_packed_attention
from verl_like.ops.segments import segments
from verl_like.plan.counter import COUNTED, fuse_layers, register_counted_attention
from verl_like.plan.live_bytes import LiveBytes
from verl_like.plan.own_experts import keep_own_experts
from verl_like.plan.pictures import picture_inputs, without_windows
from verl_like.plan.repeated import RepeatedBlocks

META = torch.device("meta")


@dataclass(frozen=True, kw_only=True, slots=True)
class PassKind:
    """Properties of a pass on which its bytes depend.

    Args:
        tokens: of the pass; ``response_tokens`` of them are predicted.
        pictures: number of pictures, each of ``picture_tokens`` tokens.
        kernel: of attention to packed rows.
        learns: whether a backward pass follows; if not, nothing is kept for it.
        recomputed_vision: blocks of the vision part that backward recomputes, the first ones.
        expert_ranks: ranks that share the experts of a layer and exchange tokens; 1 if a layer has all its experts.
        expert_dtype: of such experts between passes.
    """

    tokens: int
    response_tokens: int
    pictures: int
    picture_tokens: int
    dtype: torch.dtype
    is_fused: bool
    is_on_gpu: bool
    learns: bool
    has_adapters: bool
    freezes_vision: bool
    recomputed_vision: int
    expert_ranks: int
    expert_dtype: torch.dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerBytes:
    """Bytes of a layer, beyond its input.

    Args:
        kept: for backward, its output included.
        forward: most during forward.
        backward: most during backward, with the gradients of its weights; ``added`` if these are added to others,
            which are not counted.
        gradients: of its weights.
    """

    kept: float
    forward: float
    backward: float
    added: float
    gradients: float


@dataclass(frozen=True, slots=True)
class EndBytes:
    """Bytes of all that runs before and after the layers.

    Args:
        before: most before the first layer.
        during: alive while layers run forward; the input of the first layer is a part.
        after: alive after the forward pass; its output is a part.
        closing: most from the last layer's output to the layers' backward; without logits.
        returning: alive while layers run backward, without the gradient of their output.
        backward: most after the layers' backward, with the gradients of weights; ``added`` as of layers.
        gradients: of weights.
    """

    before: float
    during: float
    after: float
    closing: float
    returning: float = 0.0
    backward: float = 0.0
    added: float = 0.0
    gradients: float = 0.0


class _Seen:
    """Inputs of a pass's first and last layer, and when they came; copies of a model share the object."""

    live: LiveBytes
    first = last = 0  # moments of their calls
    returned: int | None  # moment of the first layer's gradient
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    shape: torch.Size

    def __deepcopy__(self, memo: Any) -> _Seen:
        return self


class _Probe(nn.Module):
    """Stands in for a layer, and notes when it is called and with what."""

    def __init__(self, seen: _Seen, *, is_first: bool) -> None:
        super().__init__()
        self._seen, self._is_first = seen, is_first

    def forward(self, states: Tensor, *arguments: Any, **named: Any) -> Tensor:
        seen = self._seen
        if self._is_first:
            seen.first, seen.arguments, seen.shape = seen.live.now(), (arguments, named), states.shape
            if torch.is_grad_enabled():
                # Layers always learn, if what runs before them does not.
                states = states if states.requires_grad else states.detach().requires_grad_()
                states.register_hook(self._return)  # type: ignore[no-untyped-call]
        seen.last = seen.live.now()
        return states

    def _return(self, gradient: Tensor) -> None:
        self._seen.returned = self._seen.live.now()


class CountedModel:
    """A model on the meta device, whose passes are counted.

    Args:
        backbone: a language model, or one without its output layer.
        layers: its decoder layers.
    """

    def __init__(self, backbone: Any, layers: Sequence[nn.Module]) -> None:
        base = backbone.base_model
        self._seen = _Seen()
        reader = getattr(base, "language_model", base)
        own = reader.layers
        reader.layers = nn.ModuleList(_Probe(self._seen, is_first=not index) for index in range(len(layers)))
        try:
            self._ends = copy.deepcopy(base)
        finally:
            reader.layers = own
        kinds: dict[object, int] = {}
        self._kind_of_layer = [kinds.setdefault(_kind(layer), len(kinds)) for layer in layers]
        self._layers = [copy.deepcopy(layers[self._kind_of_layer.index(kind)]) for kind in range(len(kinds))]
        self._found: dict[object, Any] = {}

    @property
    def num_layers(self) -> int:
        return len(self._kind_of_layer)

    @property
    def num_vision_blocks(self) -> int:
        return len(_vision_blocks(self._ends))

    def layer(self, index: int, kind: PassKind, *, is_recomputed: bool) -> LayerBytes:
        """Return the bytes of a decoder layer."""
        kind = replace(kind, recomputed_vision=0)  # of which a layer knows nothing
        _, arguments, shape = self._pass(kind)
        template = self._kind_of_layer[index]
        key = template, kind, is_recomputed
        if key not in self._found:
            layer = _prepared(self._layers[template], kind)
            if is_recomputed:
                recompute(layer)
            self._found[key] = _layer_bytes(layer, arguments, shape, kind)
        found: LayerBytes = self._found[key]
        return found

    def ends(self, kind: PassKind) -> EndBytes:
        """Return the bytes of all that runs before and after the layers."""
        if kind.recomputed_vision in (0, self.num_vision_blocks):
            found: EndBytes = self._pass(kind)[0]
            return found
        part = kind.recomputed_vision / self.num_vision_blocks
        none, whole = (self.ends(replace(kind, recomputed_vision=number)) for number in (0, self.num_vision_blocks))
        pairs = zip(astuple(none), astuple(whole), strict=True)
        return EndBytes(*(few * (1 - part) + many * part for few, many in pairs))

    def _pass(self, kind: PassKind) -> tuple[EndBytes, Any, torch.Size]:
        """Return the bytes, and the arguments of layers and the shape of their states."""
        if kind not in self._found:
            found = self._counted(kind)
            self._found[kind] = found, self._seen.arguments, self._seen.shape
        result: tuple[EndBytes, Any, torch.Size] = self._found[kind]
        return result

    def _counted(self, kind: PassKind) -> EndBytes:
        model: Any = _prepared(self._ends, kind)
        for parameter in unused_parameters(model):
            parameter.requires_grad_(False)
        for block in _vision_blocks(model)[: kind.recomputed_vision]:
            recompute(block)
        seen = self._seen
        seen.returned = None
        with LiveBytes() as live, torch.set_grad_enabled(kind.learns):
            blocks = RepeatedBlocks(_used(_vision_blocks(model)), live)
            live.watch(model)
            seen.live = live
            inputs = _inputs(model.config, kind)  # they stay for the whole pass
            without_windows(model, inputs)
            found = model(**inputs).last_hidden_state
            predictors = torch.zeros(kind.response_tokens, dtype=torch.int64, device=META)
            found = found.flatten(0, 1).index_select(0, predictors)
            after, more = live.now(), blocks.count * blocks.kept
            stay = more * (kind.learns and not (kind.has_adapters or kind.freezes_vision))  # until backward
            before = live.peak(0, seen.first) + more, live.level(seen.last) + more, live.level(after) + stay
            if not kind.learns:
                return EndBytes(*before, closing=live.peak(seen.last) + more)
            edge, gradient = get_gradient_edge(found), torch.empty_like(found)
            del found
            torch.autograd.backward([edge], [gradient])
            del edge, gradient
            returned, end = seen.returned, live.now()
        assert returned is not None, "the gradient of the first layer's input was not computed"
        states = prod(seen.shape) * kind.dtype.itemsize
        gradients = blocks.count * blocks.gradients if stay else 0
        split = returned if blocks.returned is None else blocks.returned
        return EndBytes(
            *before,
            closing=live.peak(seen.last, returned) + more,
            returning=max(live.level(returned, gradients="ignored") - states, 0) + stay,
            # Each of the blocks frees what it keeps, and has gradients instead.
            backward=max(live.peak(returned, split) + stay, live.peak(split, end) + max(stay, gradients)),
            added=live.peak(returned, end, gradients="added") + stay,
            gradients=live.gradient_bytes + gradients,
        )


def _vision_blocks(model: Any) -> list[nn.Module]:
    """Return the modules of a model without decoder layers that its authors declare indivisible."""
    names = set(model._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def _used(blocks: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the blocks that pictures reach, whose weights can learn or are all frozen."""
    learning = [block for block in blocks if any(parameter.requires_grad for parameter in block.parameters())]
    return learning or list(blocks)


def _inputs(config: Any, kind: PassKind) -> dict[str, Any]:
    """Return the arguments of a model; what decides sizes has values."""
    found: dict[str, Any] = {}
    shown = 0
    if kind.pictures:
        found, each = picture_inputs(config, kind.pictures, kind.picture_tokens)
        shown = kind.pictures * each
    text = next(number for number in range(8) if number not in forbidden_ids(config))
    ids = torch.full((1, max(kind.tokens, shown)), text, dtype=torch.int64)
    if shown:
        ids[0, :shown] = config.image_token_id
    positions: Tensor = torch.empty((3, *ids.shape) if "image_grid_thw" in found else ids.shape, device=META)
    return found | {
        "input_ids": ids,
        "position_ids": positions.long(),
        "attention_mask": None,
        "use_cache": False,
        "segments": segments(np.array([ids.shape[1]]), device=META),
        "kernel": COUNTED if kind.is_on_gpu else "sdpa",
    }


def _layer_bytes(layer: nn.Module, arguments: Any, shape: torch.Size, kind: PassKind) -> LayerBytes:
    positional, named = arguments
    with LiveBytes() as live, torch.set_grad_enabled(kind.learns):
        live.watch(layer)
        states = torch.empty(shape, dtype=kind.dtype, device=META, requires_grad=kind.learns)
        begin = live.now()
        found = layer(states, *positional, **named)
        found = found[0] if isinstance(found, tuple) else found
        after = live.now()
        own = live.level(begin)
        kept, forward = live.level(after) - own, live.peak(begin, after) - own
        if not kind.learns:
            return LayerBytes(kept=kept, forward=forward, backward=0.0, added=0.0, gradients=0.0)
        edge, gradient = get_gradient_edge(found), torch.empty_like(found)
        del found
        torch.autograd.backward([edge], [gradient])
    return LayerBytes(
        kept=kept,
        forward=forward,
        backward=live.peak(after) - own,
        added=live.peak(after, gradients="added") - own,
        gradients=live.gradient_bytes,
    )


def _prepared(template: nn.Module, kind: PassKind) -> nn.Module:
    """Return a copy of a module that computes as in such a pass."""
    register_packed_attention()
    register_counted_attention()
    module = copy.deepcopy(template)
    if kind.is_fused:
        fuse_layers(module)
    for name, parameter in module.named_parameters():
        parameter.data = parameter.data.to(kind.dtype)
        learns = "lora_" in name if kind.has_adapters else not (kind.freezes_vision and is_of_vision(name))
        parameter.requires_grad_(kind.learns and learns)
    if kind.expert_ranks > 1:
        keep_own_experts(module, ranks=kind.expert_ranks, dtype=kind.expert_dtype)
    return module


def _kind(layer: nn.Module) -> object:
    """Return what distinguishes layers of different sizes."""
    return tuple((name, tuple(parameter.shape)) for name, parameter in layer.named_parameters())
