"""LoRA with peft: adapters on the linear layers of a model. Only the adapters learn; the layers keep their weights.

Checked against peft 0.21.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftConfig
from peft import inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedConfig, PreTrainedModel

from verl_like.backends.model_folder import fresh_folder
from verl_like.backends.pictures import generator_class, reads_pictures
from verl_like.config.schema import LoraConfig, ModelConfig
from verl_like.ops.routers import routers_of

ADAPTER_FILE = "adapter_model.safetensors"
ALL_LINEAR = "all-linear"
_ADAPTER = "default"  # peft's default name of an adapter
_OF_VISION = r".*\b(visual|vision_tower|multi_modal_projector)\..*"  # expression of layers' names
_BASE, _DOWN, _UP = ".base_layer.", f".lora_A.{_ADAPTER}.", f".lora_B.{_ADAPTER}."

# Names of layers that peft takes for experts in mixtures, also where they are none.
_NAMES_OF_EXPERTS = {"gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"}


def peft_config(lora: LoraConfig, backbone: PreTrainedModel) -> PeftConfig:
    """Return peft's config of the adapter, without dropout; the layers that read pictures have none, and all-linear
    selects no feed-forward parts in mixtures of experts.
    """
    targets = ALL_LINEAR if ALL_LINEAR in lora.targets else list(lora.targets)
    if targets == ALL_LINEAR and routers_of(backbone):
        targets = sorted(_names_of_linear(backbone) - _NAMES_OF_EXPERTS)
    return PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        exclude_modules=_OF_VISION if reads_pictures(backbone.config) else None,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )


def _names_of_linear(backbone: PreTrainedModel) -> set[str]:
    """Return the last names of the linear layers except the output layer."""
    output = backbone.get_output_embeddings()
    layers = backbone.named_modules()
    return {name.rpartition(".")[2] for name, each in layers if isinstance(each, nn.Linear) and each is not output}


def adapters_of(config: PreTrainedConfig, model: ModelConfig) -> Adapters:
    """Return the adapters of a causal language model, without memory."""
    with torch.device("meta"):
        skeleton = generator_class(config).from_config(config, trust_remote_code=model.trust_remote_code)
    return Adapters(skeleton, model.lora)


class Adapters:
    """The adapters of one model: added to the layers of a skeleton, in float32 and without memory, like the skeleton
    itself.

    Raises:
        ValueError: if no layer has such a name, or one that has it is not linear.
    """

    def __init__(self, backbone: PreTrainedModel, lora: LoraConfig) -> None:
        self.config = peft_config(lora, backbone)
        self._backbone, self._scale = backbone, lora.alpha / lora.rank
        linear = _names_of_linear(backbone)
        try:
            inject_adapter_in_model(self.config, backbone, low_cpu_mem_usage=True)
        except ValueError as error:
            raise ValueError(
                f"model.lora.targets={list(lora.targets)} does not fit {type(backbone).__name__}: {error} Its linear "
                f"layers are called {', '.join(sorted(linear))}; {ALL_LINEAR} selects all except the output layer."
            ) from error
        for name, layer in self._layers():
            if layer is backbone.get_output_embeddings() or not isinstance(layer.get_base_layer(), nn.Linear):
                why = "is the output layer, whose logits are computed in parts"
                if routers_of(backbone) and layer is not backbone.get_output_embeddings():
                    why = "holds experts or chooses among them: these have no adapters"
                raise ValueError(
                    f"model.lora.targets={list(lora.targets)} selects {name}, which is no linear layer, or {why}. "
                    f"Leave it out, or set model.lora.targets=[{ALL_LINEAR}]."
                )
            layer.lora_A.float()  # float32 masters for the optimiser, whatever the layer's dtype
            layer.lora_B.float()

    def _layers(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, layer) of the layers with an adapter."""
        return ((name, layer) for name, layer in self._backbone.named_modules() if isinstance(layer, LoraLayer))

    def freeze_others(self) -> None:
        """Freeze everything except the adapters."""
        self._backbone.requires_grad_(False)
        for _, parameter in self.parameters():
            parameter.requires_grad_(True)

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (name, parameter) of the adapters only, under the names of peft's files."""
        for name, parameter in self._backbone.named_parameters():
            if _DOWN in name or _UP in name:
                yield f"base_model.model.{name.replace(f'.{_ADAPTER}.', '.')}", parameter

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(parameter.shape) for name, parameter in self.parameters()}

    def write(self, folder: Path, tensors: Mapping[str, Tensor], *, base: str) -> None:
        """Write a peft folder, which appears complete or not at all; an older one is replaced.

        Args:
            tensors: full tensors of :meth:`parameters`.
            base: folder or hub name of the model to which the adapters belong.
        """
        with fresh_folder(folder) as fresh:
            config = replace(self.config, base_model_name_or_path=base, inference_mode=True)
            config.save_pretrained(str(fresh))
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, fresh / ADAPTER_FILE)

    @contextmanager
    def original_layers(self) -> Iterator[None]:
        """Restore the original layers inside the context, so that the model has the layer names of its files."""
        found = list(self._layers())
        for name, layer in found:
            self._set_layer(name, layer.get_base_layer())
        try:
            yield
        finally:
            for name, layer in found:
                self._set_layer(name, layer)

    def _set_layer(self, name: str, layer: nn.Module) -> None:
        parent, _, own = name.rpartition(".")
        setattr(self._backbone.get_submodule(parent), own, layer)

    def initialise(self, *, device: torch.device, seed: int) -> None:
        """Initialise the adapters, equally on all ranks: A as PyTorch initialises a linear layer, B with zeros."""
        numbers = torch.Generator().manual_seed(seed)
        for _, layer in self._layers():
            for part, is_down in ((layer.lora_A[_ADAPTER], True), (layer.lora_B[_ADAPTER], False)):
                whole = torch.zeros(part.weight.shape)
                if is_down:
                    nn.init.kaiming_uniform_(whole, a=math.sqrt(5), generator=numbers)
                old = part.weight
                if isinstance(old, DTensor):  # all ranks have the full tensor, so nothing is sent
                    whole = distribute_tensor(whole, old.device_mesh, old.placements, src_data_rank=None)
                part.weight = nn.Parameter(whole.to(device))  # may differ from the device of the mesh

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Disable the adapters inside the context, so that the model computes as it was loaded."""
        layers = [layer for _, layer in self._layers()]
        # enable_adapters is not used, because it also freezes the adapters, and FSDP's parameter for a frozen shard
        # stays frozen.
        for layer in layers:
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer in layers:
                layer._disable_adapters = False

    @torch.no_grad()
    def merged(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) as without adapters, each adapter added to a copy of its layer's weight.

        Args:
            tensors: in the order of the module, in which a layer comes before its adapter, and A before B.
        """
        weight, down = torch.empty(0), torch.empty(0)
        for name, tensor in tensors:
            if name.endswith(f"{_BASE}weight"):
                weight = tensor
            elif _DOWN in name:
                down = tensor
            elif _UP in name:
                change = tensor.float() @ down.float()
                yield name.replace(_UP, "."), weight.float().add(change, alpha=self._scale).to(weight.dtype)
            else:
                yield name.replace(_BASE, "."), tensor
