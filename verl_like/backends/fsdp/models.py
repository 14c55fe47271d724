"""Hugging Face models as FSDP roots: a policy that returns token statistics, and a value model, which also serves as a
reward model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from verl_like.backends.fsdp.fused_layers import with_fused_layers
from verl_like.backends.fsdp.loading import Auto, skeleton
from verl_like.backends.fsdp.row_pictures import with_unused_picture
from verl_like.backends.pictures import forbidden_ids, generator_class, is_of_vision, reads_pictures, unused_parameters
from verl_like.config.schema import LoraConfig, ModelConfig
from verl_like.ops.attention import PACKED_ATTENTION, register_packed_attention
from verl_like.ops.divergence import States
from verl_like.ops.log_probs import TokenStats, TokenStatsFunction
from verl_like.ops.matmul import with_fast_matmul
from verl_like.ops.packing import ModelInputs
from verl_like.ops.patches import with_patch_products
from verl_like.ops.routers import Routers, routers_of
from verl_like.ops.tiles import OutputLayer
from verl_like.remote_models import local_path

if TYPE_CHECKING:
    from verl_like.backends.lora import Adapters

T = TypeVar("T")

log = logging.getLogger(__name__)

VALUE_HEAD_FILE = "value_head.safetensors"
HEAD = "score"  # transformers' name of a sequence classifier's head on a decoder

# Config fields by which some families scale their logits after the output layer; log-probs without them would be wrong.
_LOGIT_SCALES = ("logit_scale", "logits_scaling", "final_logit_scaling")
_PACKABLE_LAYERS = {"full_attention", "sliding_attention"}


class ShardedModel(nn.Module):
    """Base of the policy and the value model. The whole computation is in ``forward``, so FSDP gathers every weight it
    uses.

    It stays in eval mode while it learns: the rollout samples without dropout, and old and new log-probs must come from
    the same function.
    """

    backbone: PreTrainedModel  # the Hugging Face model, with its parameter names

    def __init__(self, backbone: PreTrainedModel, *, kernel: str | None) -> None:
        super().__init__()
        self.backbone = backbone
        self.adapters: Adapters | None = None
        self.kernel = kernel
        self.routers: Routers | None = None
        self.freezes_routers = self.freezes_vision = False
        self.unused_picture: Mapping[str, Tensor] | None = None  # for passes without pictures, if ranks need one
        with_fast_matmul(backbone)
        with_patch_products(backbone)

    def add_adapters(self, lora: LoraConfig) -> None:
        """Add adapters, which learn instead of the backbone.

        Raises:
            ValueError: if they do not fit the model.
        """
        from verl_like.backends.lora import Adapters  # imports peft, which nothing else needs

        self.adapters = Adapters(self.backbone, lora)
        with_fast_matmul(self.backbone)

    def original_layers(self) -> AbstractContextManager[None]:
        """Restore, inside the context, the backbone's own layers and names, as in its files."""
        return nullcontext() if self.adapters is None else self.adapters.original_layers()

    def set_requires_grad(self, *, is_frozen: bool) -> None:
        """Set which parameters require gradients: none of a frozen model, and only the adapters if there are any."""
        self.requires_grad_(not is_frozen)
        for router in routers_of(self.backbone) if self.freezes_routers else ():
            router.requires_grad_(False)
        for parameter in unused_parameters(self.backbone.base_model):
            parameter.requires_grad_(False)
        if self.freezes_vision:
            for name, parameter in self.backbone.base_model.named_parameters():
                parameter.requires_grad_(parameter.requires_grad and not is_of_vision(name))
        if self.adapters is not None:
            self.adapters.freeze_others()

    @property
    def hidden_size(self) -> int:
        return int(self.backbone.config.get_text_config().hidden_size)

    def hidden_states(self, inputs: ModelInputs) -> Tensor:
        """Return [K_r, H]: the states that predict the targets; if ranks share a sequence, this rank's own."""
        arguments: dict[str, Any] = {"attention_mask": inputs.attention_mask}
        if self.kernel is not None:
            arguments = {"attention_mask": None, "segments": inputs.segments, "kernel": self.kernel}
        ids: Tensor | None
        ids, positions, predictors = inputs.input_ids, inputs.position_ids, inputs.predictors
        if (piece := inputs.piece) is not None:
            ids, positions, predictors = ids[:, piece.tokens], positions[:, piece.tokens], piece.predictors
            arguments["sequence_ranks"] = piece.sequence_ranks
        if inputs.pictures is not None:
            arguments |= inputs.pictures
        elif self.unused_picture is not None:
            embedded = self.backbone.get_input_embeddings()(ids)
            arguments["inputs_embeds"] = with_unused_picture(self.backbone.base_model, embedded, self.unused_picture)
            ids = None
        if self.routers is not None:
            own = slice(None) if piece is None else piece.tokens
            self.routers.replay(None if inputs.experts is None else inputs.experts[own])
            self.routers.count(position_weights(inputs)[own] if torch.is_grad_enabled() else None)
        outputs = self.backbone.base_model(input_ids=ids, position_ids=positions, use_cache=False, **arguments)
        return outputs.last_hidden_state.flatten(0, 1).index_select(0, predictors)

    def decoder_layers(self) -> list[nn.Module]:
        """Return the modules that the model's authors declare indivisible."""
        names = set(self.backbone._no_split_modules or ())
        return [module for module in self.backbone.modules() if type(module).__name__ in names]

    def embeddings(self) -> list[nn.Module]:
        """Return the embedding and the output layer, if there is one and they do not share their weights."""
        found = [self.backbone.get_input_embeddings(), self.backbone.get_output_embeddings()]
        modules = [module for module in found if module is not None]
        return modules if len({id(module.weight) for module in modules}) == len(modules) else []


class PolicyModel(ShardedModel):
    """A causal language model that returns statistics of response tokens instead of logits."""

    def __init__(
        self,
        backbone: PreTrainedModel,
        *,
        kernel: str | None,
        token_stats: TokenStatsFunction,
        float32_logits: bool = False,
    ) -> None:
        super().__init__(backbone, kernel=kernel)
        self.token_stats, self.float32_logits = token_stats, float32_logits
        self.forbidden_ids = forbidden_ids(backbone.config)
        # dict access, because only some families define the field.
        self.softcap = float(backbone.config.to_dict().get("final_logit_softcapping") or 0.0)
        # FSDP gathers a module's weights when the module is called, so the output layer itself runs what reads them.
        vars(self.head)["forward"] = self._read

    @property
    def head(self) -> nn.Linear:
        head = self.backbone.get_output_embeddings()
        assert isinstance(head, nn.Linear), f"the output layer is a {type(head).__name__}, expected a Linear"
        return head

    def output_layer(self) -> OutputLayer:
        weight: Tensor = self.head.weight
        bias: Tensor | None = self.head.bias
        if self.forbidden_ids:  # no engine samples them
            bias = weight.new_zeros(len(weight)) if bias is None else bias
            bias = bias.index_fill(0, torch.tensor(self.forbidden_ids, device=weight.device), -torch.inf)
        return OutputLayer(weight=weight, bias=bias, softcap=self.softcap, in_float32=self.float32_logits)

    def forward(
        self,
        inputs: ModelInputs,
        *,
        temperature: float,
        entropy: bool = False,
        sum_pi_squared: bool = False,
        compare: Callable[[States], Tensor] | None = None,
        only_states: bool = False,
    ) -> TokenStats | States:
        """Return statistics of the targets, or only the states that predict them, of which ranks that share a sequence
        have their own.

        Args:
            compare: returns ``divergence`` [K_r] from these states.
        """
        hidden, piece = self.hidden_states(inputs), inputs.piece
        if only_states:
            states: States = self.head(hidden, lambda states: states)
            return states
        targets, candidates = inputs.targets, inputs.candidates
        if piece is not None:
            targets = targets[piece.positions]
            candidates = None if candidates is None else candidates.at(piece.positions)

        def statistics(states: States) -> TokenStats:
            found = self.token_stats(
                *states,
                targets,
                temperature=temperature,
                entropy=entropy,
                sum_pi_squared=sum_pi_squared,
                candidates=candidates,
            )
            for shown in self.forbidden_ids:  # a target that is shown to the model was not chosen
                found = found._replace(log_probs=found.log_probs.masked_fill(targets == shown, 0.0))
            return found if compare is None else found._replace(divergence=compare(states))

        found: TokenStats = self.head(hidden, statistics)
        if piece is None:
            return found
        return found._replace(**{name: piece.whole(own) for name, own in found._asdict().items() if own is not None})

    def _read(self, hidden: Tensor, read: Callable[[States], T]) -> T:
        return read(States(hidden, self.output_layer()))


class ValueModel(ShardedModel):
    """A language model's body with one linear output per position."""

    def __init__(self, backbone: PreTrainedModel, *, kernel: str | None, head: nn.Linear) -> None:
        super().__init__(backbone, kernel=kernel)
        self.value_head = head

    def forward(self, inputs: ModelInputs) -> Tensor:
        """Return [K_r] float32, the value before each target."""
        # float32 whatever the body's dtype: bfloat16 has only 8 significant bits for a regression target.
        head = self.value_head
        # Multiply with a vector: FSDP hooks the gradient of a root's output, and warns if that is a view.
        values = self.hidden_states(inputs).float() @ head.weight.float().view(-1)
        values = values if head.bias is None else values + head.bias.float()
        return values if inputs.piece is None else inputs.piece.whole(values)


def position_weights(inputs: ModelInputs) -> Tensor:
    """Return [K] float32, how many response tokens each flattened position predicts, the same in every layout."""
    weights = torch.zeros(inputs.input_ids.numel(), device=inputs.input_ids.device)
    predictors = inputs.predictors[: inputs.num_targets]
    return weights.index_add_(0, predictors, torch.ones_like(predictors, dtype=weights.dtype))


def policy_skeleton(
    path: str, *, model: ModelConfig, kernel: str | None, dtype: torch.dtype, token_stats: TokenStatsFunction
) -> PolicyModel:
    """Return the causal language model of a folder or hub name, without dropout and without memory for its weights."""
    config = load_config(path, model=model)
    backbone = _skeleton(generator_class(config), config, model=model, kernel=kernel, dtype=dtype)
    logits = model.float32_logits
    return PolicyModel(backbone, kernel=kernel, token_stats=token_stats, float32_logits=logits).eval()


def value_skeleton(path: str, *, model: ModelConfig, kernel: str | None, dtype: torch.dtype) -> ValueModel:
    """Return a language model's body, as above, with a new head or with the head of an exported critic."""
    backbone = _skeleton(AutoModel, load_config(path, model=model), model=model, kernel=kernel, dtype=dtype)
    head = nn.Linear(backbone.config.hidden_size, 1)  # in float32: it learns, also if the body has adapters
    # Zero: a new critic predicts nothing, so the first advantages are the returns themselves.
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    head_file = Path(path) / VALUE_HEAD_FILE
    if head_file.is_file():
        head.load_state_dict(load_file(head_file))
    return ValueModel(backbone, kernel=kernel, head=head).eval()


def score_skeleton(
    path: str, *, model: ModelConfig, kernel: str | None, dtype: torch.dtype, has_new_head: bool = False
) -> ValueModel:
    """Return a sequence classifier with one label, as above; its score of a sequence is the value after its last token.

    Args:
        has_new_head: whether the folder holds a language model, which gets a head for one label.

    Raises:
        ValueError: for a model with another number of labels, or one whose score is not read at the last token.
    """
    config = load_config(path, model=model)
    if has_new_head:
        config.num_labels = 1
    if config.num_labels != 1:
        raise ValueError(
            f"the config of {path!r} has {config.num_labels} labels, expected the one of a reward model, whose output "
            "is a score. Name a model that was trained for sequence classification with num_labels=1."
        )
    classifier = _skeleton(AutoModelForSequenceClassification, config, model=model, kernel=kernel, dtype=dtype)
    # In transformers a head named score reads the last token; heads of encoders have other names and pool differently.
    heads = {name: child for name, child in classifier.named_children() if name != classifier.base_model_prefix}
    if list(heads) != [HEAD] or not isinstance(heads[HEAD], nn.Linear):
        found = ", ".join(f"{name} ({type(child).__name__})" for name, child in heads.items())
        raise ValueError(
            f"the {type(classifier).__name__} in {path!r} ends in {found or 'nothing'}, expected one linear layer "
            "called score after a decoder. Name a reward model of a decoder family, such as Llama, Qwen, Mistral or "
            "Gemma."
        )
    return ValueModel(classifier, kernel=kernel, head=heads[HEAD]).eval()


def is_classifier(path: str, *, model: ModelConfig) -> bool:
    """Return whether a folder or hub name holds a sequence classifier, rather than a language model."""
    names = load_config(path, model=model).architectures or []
    return any(name.endswith("ForSequenceClassification") for name in names)


def _skeleton(
    auto: Auto, config: PreTrainedConfig, *, model: ModelConfig, kernel: str | None, dtype: torch.dtype
) -> PreTrainedModel:
    if kernel is not None:
        _check_packable(config)
        register_packed_attention()
    attention = PACKED_ATTENTION if kernel is not None else "sdpa"
    # transformers' own function for sdpa silently ignores caps (5.19).
    if kernel is None and getattr(config.get_text_config(), "attn_logit_softcapping", None):
        attention = "eager"
    parts = attention_of_parts(config, attention)
    found = skeleton(auto, config, attention=parts, dtype=dtype, trust_remote_code=model.trust_remote_code)
    if model.kernels != "torch":
        with_fused_layers(found, is_required=model.kernels == "liger")
    return found


def attention_of_parts(config: PreTrainedConfig, own: str) -> str | dict[str, str]:
    """Return the attention of each part of a model: a picture's patches are no packed rows."""
    return {"": own, "text_config": own, "vision_config": "sdpa"} if reads_pictures(config) else own


def load_config(path: str, *, model: ModelConfig) -> PreTrainedConfig:
    """Return the model's config with ``model.override_config`` applied.

    Raises:
        ValueError: for a missing path, an unknown override, or a model whose logits are scaled after the output layer.
    """
    if not path:
        raise ValueError(
            "model.path is empty; expected a folder or hub name of a Hugging Face model. Set model.path=PATH."
        )
    path = local_path(path)
    if Path(path).is_dir() and not (Path(path) / "config.json").is_file():
        raise ValueError(f"the folder {path!r} has no config.json; expected a Hugging Face model. Check model.path.")
    is_hub_name = path.count("/") == 1 and not path.startswith((".", "/", "~"))
    if not Path(path).is_dir() and not is_hub_name:
        raise ValueError(
            f"the model folder {path!r} does not exist; expected a folder or a hub name like 'owner/name'. Check "
            f"model.path."
        )
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=model.trust_remote_code)
    except OSError as error:
        raise ValueError(
            f"the model {path!r} is neither a folder here nor readable from the hub: {error}. Check model.path."
        ) from error
    known = config.to_dict()
    for name, replacement in model.override_config.items():
        if name not in known:
            raise ValueError(
                f"model.override_config has {name!r}, which the {type(config).__name__} of {path!r} does not know; "
                f"it knows {sorted(known)}."
            )
        _refuse_of_section(config, name, path)
        setattr(config, name, replacement)
    scales = {name: known[name] for name in _LOGIT_SCALES if name in known and known[name] not in (None, 1, 1.0)}
    if scales:
        raise ValueError(
            f"the model {path!r} scales its logits ({scales}), which the log-prob function does not. Choose another "
            f"model."
        )
    return config


def _refuse_of_section(config: PreTrainedConfig, name: str, path: str) -> None:
    """Raise ValueError for a name that a section of the config has, or that is a section: neither is replaced."""
    text = config.get_text_config()
    is_section = isinstance(getattr(config, name), PreTrainedConfig)
    if is_section or (text is not config and name in text.to_dict() and name not in PreTrainedConfig().to_dict()):
        what = "is a section of" if is_section else "belongs to the section text_config of"
        raise ValueError(
            f"model.override_config has {name!r}, which {what} the {type(config).__name__} of {path!r}; expected a "
            "value outside sections. Write it into config.json of a copy of the model."
        )


def _check_packable(config: PreTrainedConfig) -> None:
    layers = set(config.get_text_config().to_dict().get("layer_types") or ()) - _PACKABLE_LAYERS
    if layers:
        raise ValueError(
            f"the model has layers of type {sorted(layers)}, which mix tokens across packed rows. "
            "Set model.remove_padding=false."
        )
