"""Sizes of a model, counted on the meta device: parameters by FSDP group, and widths."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verl_like.checks.experts import EXPERTS
from verl_like.config.schema import LoraConfig, ModelConfig
from verl_like.plan.pictures import PictureSizes, picture_sizes

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

    from verl_like.plan.layers import CountedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertSizes:
    """Parameters of the experts that can stay on their ranks.

    Args:
        num_parameters: of all experts of all layers; ``num_of_layer`` of one layer's.
        num_rest_of_layer: parameters of the largest decoder layer without its experts.
        num_layers: layers with experts.
        top_k: experts of a token in a layer.
    """

    num_parameters: int
    num_of_layer: int
    num_rest_of_layer: int
    num_layers: int
    top_k: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """Numbers of parameters, and widths in elements.

    Args:
        num_parameters: all parameters; tied ones count once.
        num_layer_parameters: parameters of the largest decoder layer. A token uses ``num_active_layer_parameters`` of
            them, which are fewer in mixtures of experts.
        num_root_parameters: parameters outside the decoder layers: embeddings, output layer, last norm.
        largest_tensor: elements of the largest parameter.
        num_layers: number of decoder layers.
        intermediate_size: width of the feed-forward part; the sum over a token's experts.
        vocab_size: width of the output layer; 0 for a model without one.
        num_heads, num_kv_heads, head_dim: sizes of attention.
        num_adapter_parameters: parameters of ``model.lora``, not included in the others.
        num_embedding_parameters, num_output_parameters: those of the embedding and of the output layer; 0 if these
            share their weights, or for a model without output layer.
        has_fused_kernels: whether Liger has kernels for its norms and feed-forward parts.
        num_head_parameters: parameters of the output layer, also if the embedding shares them.
        num_fixed_parameters: parameters that never learn, of what reads pictures.
        vision_parts: parameters of each part of what reads pictures that is indivisible, in their order.
        has_frozen_vision: whether what reads pictures does not learn (``model.freeze_vision``).
        pictures: sizes of the pictures that the model reads; None for a model of text.
        experts: None for a model without experts.
        has_router_biases: whether it has routers, and all choose with a bias that can be moved.
        counted: the model whose passes are counted; None if formulas describe its layers.
    """

    num_parameters: int
    num_layer_parameters: int
    num_active_layer_parameters: int
    num_root_parameters: int
    largest_tensor: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_adapter_parameters: int = 0
    num_embedding_parameters: int = 0
    num_output_parameters: int = 0
    has_fused_kernels: bool = False
    num_head_parameters: int = 0
    num_fixed_parameters: int = 0
    vision_parts: tuple[int, ...] = ()
    has_frozen_vision: bool = False
    pictures: PictureSizes | None = None
    experts: ExpertSizes | None = None
    has_router_biases: bool = False
    counted: CountedModel | None = field(default=None, compare=False)

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of keys and values per token in the engine's cache."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    def flops_per_token(self, context: float) -> float:
        """Return the FLOPs of a forward pass for one token that attends to ``context`` tokens on average.

        They are 2 per parameter of a matrix product (with the output layer, without the embedding), plus two products
        of ``num_heads * head_dim`` per attended token.
        """
        matrices = self.num_layers * self.num_active_layer_parameters + self.vocab_size * self.hidden_size
        return 2.0 * matrices + self.attention_flops(context)

    def attention_flops(self, attended: float) -> float:
        """Return the FLOPs of all layers' attention for this many pairs of a query and a key."""
        return 4.0 * self.num_layers * self.num_heads * self.head_dim * attended


def model_shape(path: str, model: ModelConfig, *, has_logits: bool = True) -> ModelShape:
    """Return the shape of a model in a folder or on the hub; only config.json is read.

    Args:
        has_logits: whether the model runs as a language model; critics and reward models run without output layer.

    Raises:
        ValueError: the model does not exist.
    """
    from verl_like.backends.fsdp.fused_layers import is_gated, is_norm
    from verl_like.backends.fsdp.models import load_config
    from verl_like.backends.pictures import reads_pictures
    from verl_like.ops.routers import choose_with_biases, routers_of
    from verl_like.plan.layers import CountedModel

    config = load_config(path, model=model)
    text = config.get_text_config()
    known, sees = text.to_dict(), reads_pictures(config)
    num_experts = next((known[name] for name in EXPERTS if known.get(name)), 1)
    is_counted = sees or num_experts > 1
    backbone = _backbone(config, model, has_logits=has_logits, is_counted=is_counted)
    names = set(backbone._no_split_modules or ())
    reader = getattr(backbone.base_model, "language_model", backbone)  # of a model of pictures, what reads text
    layers = [module for module in reader.modules() if type(module).__name__ in names]
    sizes = [_size(layer) for layer in layers]
    in_experts, chosen = [_num_in_experts(layer) for layer in layers], known.get("num_experts_per_tok") or 1
    experts = _expert_sizes(sizes, in_experts, top_k=min(chosen, num_experts))
    width = getattr(text, "intermediate_size", None) or 4 * text.hidden_size  # some families do not state it
    active = sizes
    if experts is not None:
        unused = 1 - experts.top_k / num_experts
        active = [round(size - part * unused) for size, part in zip(sizes, in_experts, strict=True)]
        width = experts.top_k * (known.get("moe_intermediate_size") or width)
    num_parameters = sum(p.numel() for p in backbone.parameters())
    embedding, output = backbone.get_input_embeddings(), backbone.get_output_embeddings() if has_logits else None
    is_tied = output is not None and output.weight is embedding.weight
    return ModelShape(
        num_parameters=num_parameters,
        num_layer_parameters=max(sizes, default=0),
        num_active_layer_parameters=max(active, default=0),
        num_root_parameters=num_parameters - sum(sizes),
        largest_tensor=max(p.numel() for p in backbone.parameters()),
        num_layers=len(layers),
        hidden_size=text.hidden_size,
        intermediate_size=width,
        vocab_size=text.vocab_size if has_logits else 0,
        num_heads=text.num_attention_heads,
        num_kv_heads=known.get("num_key_value_heads") or text.num_attention_heads,
        head_dim=known.get("head_dim") or text.hidden_size // text.num_attention_heads,
        num_embedding_parameters=0 if is_tied else embedding.weight.numel(),
        num_output_parameters=0 if is_tied or output is None else output.weight.numel(),
        num_head_parameters=0 if output is None else output.weight.numel(),
        # Formulas need both; a mixture of experts may have norms alone.
        has_fused_kernels=any(is_gated(part) or (is_counted and is_norm(part)) for part in backbone.modules()),
        num_adapter_parameters=_num_adapter_parameters(backbone, model.lora),  # it changes the layers
        experts=experts,
        has_router_biases=choose_with_biases(routers_of(backbone)),
        counted=CountedModel(backbone, layers) if is_counted else None,
        **(_of_vision(backbone, path, model, names) if sees else {}),
    )


def _backbone(config: PreTrainedConfig, model: ModelConfig, *, has_logits: bool, is_counted: bool) -> Any:
    """Return the model on the meta device."""
    import torch
    from transformers import AutoModel

    from verl_like.backends.fsdp.loading import skeleton
    from verl_like.backends.fsdp.models import attention_of_parts
    from verl_like.backends.pictures import generator_class
    from verl_like.ops.attention import PACKED_ATTENTION, register_packed_attention

    register_packed_attention()
    return skeleton(
        generator_class(config) if has_logits else AutoModel,
        config,
        attention=attention_of_parts(config, PACKED_ATTENTION if is_counted else "sdpa"),
        dtype=torch.float32,
        trust_remote_code=model.trust_remote_code,
    )


def _num_in_experts(layer: nn.Module) -> int:
    return sum(parameter.numel() for name, parameter in layer.named_parameters() if ".experts." in name)


def _expert_sizes(sizes: Sequence[int], in_experts: Sequence[int], *, top_k: int) -> ExpertSizes | None:
    """Return the sizes of the experts, from the parameters of each layer and those in its experts."""
    if not any(in_experts):
        return None
    return ExpertSizes(
        num_parameters=sum(in_experts),
        num_of_layer=max(in_experts),
        num_rest_of_layer=max(size - part for size, part in zip(sizes, in_experts, strict=True)),
        num_layers=sum(part > 0 for part in in_experts),
        top_k=top_k,
    )


def _of_vision(backbone: PreTrainedModel, path: str, model: ModelConfig, names: Collection[str]) -> dict[str, Any]:
    """Return the fields of what reads pictures.

    Args:
        names: classes of the indivisible modules.
    """
    reader = backbone.base_model.language_model
    of_text = set(reader.modules())
    parts = [part for part in backbone.modules() if type(part).__name__ in names and part not in of_text]
    return {
        "num_fixed_parameters": _num_fixed_parameters(backbone.base_model, is_frozen=model.freeze_vision),
        "vision_parts": tuple(map(_size, parts)),
        "has_frozen_vision": model.freeze_vision,
        "pictures": picture_sizes(backbone.config, path),
    }


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _num_fixed_parameters(model: PreTrainedModel, *, is_frozen: bool) -> int:
    """Return the parameters of a model of pictures that never learn."""
    from verl_like.backends.pictures import is_of_vision, unused_parameters

    unused = {id(parameter) for parameter in unused_parameters(model)}
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if id(parameter) in unused or (is_frozen and is_of_vision(name))
    )


def _num_adapter_parameters(backbone: PreTrainedModel, lora: LoraConfig) -> int:
    if not lora.rank:
        return 0
    from verl_like.backends.lora import Adapters

    return sum(parameter.numel() for _, parameter in Adapters(backbone, lora).parameters())
