"""Compile decoder layers one by one ahead of training, without their attention.

Only a layer's own forward function is compiled, so the hooks of FSDP2 and of activation checkpointing run around it.
Layers of the same shape share compiled code. A trial process of the first rank of each node compiles the first layer of
each shape beforehand, as for the log-prob function. It has no shards, for which torch 2.13 recompiles some parts, with
no deadline.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from verl_like.backends.fsdp.models import PolicyModel, ShardedModel, policy_skeleton
from verl_like.config.schema import LoraConfig, ModelConfig
from verl_like.ops.attention import HIDDEN_ATTENTION, register_hidden_attention
from verl_like.ops.compilation import compiles_in_trial
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.packing import ModelInputs, pack_rows
from verl_like.ops.tiles import without_compiling
from verl_like.ops.ulysses import SequenceRanks
from verl_like.protocol import Ragged

if TYPE_CHECKING:  # the trial process does not import it
    from verl_like.backends.fsdp.engine import FsdpEngine

log = logging.getLogger(__name__)

_LAYERS = "the decoder layers"
_REMEDY = "they run uncompiled. Set actor.compile_layers=false to skip the attempt."


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSpec:
    """Everything that compiled layers depend on; ``model`` holds the fields of a ``ModelConfig``."""

    model: dict[str, Any]
    kernel: str
    dtype: str
    device: str
    num_threads: int  # on CPU


def compile_layers(engine: FsdpEngine[PolicyModel], spec: LayerSpec, deadline_s: float) -> bool:
    """Compile the engine's layers; no later call compiles anything. Collective.

    Args:
        deadline_s: longest time the trial process may take.

    Returns:
        Whether the layers are compiled on all ranks; otherwise they run eagerly on all.
    """
    started = time.monotonic()
    module = "verl_like.backends.fsdp.compiled_layers"

    def compiles() -> bool:
        return compiles_in_trial(module, asdict(spec), deadline_s, what=_LAYERS, remedy=_REMEDY)

    if not engine.succeeds_on_nodes(compiles):
        return False
    compile_on_first_call(engine.module)
    for inputs in warm_up_inputs(engine.device, engine.sequence_ranks):
        engine.layout.expect_backward(is_last=True)
        run(engine.module, inputs)
        engine.layout.reshard()
    engine.module.zero_grad(set_to_none=True)
    for layer in engine.module.decoder_layers():
        layer.forward = without_compiling(layer.forward)
    log.info("compiled %s in %.1f s", _LAYERS, time.monotonic() - started)
    return True


def compile_on_first_call(module: ShardedModel) -> None:
    """Make the layers compile when they are first called."""
    register_hidden_attention()
    module.backbone.set_attn_implementation(HIDDEN_ATTENTION)
    for layer in module.decoder_layers():
        layer.forward = torch.compile(layer.forward, dynamic=True)


def warm_up_inputs(device: torch.device, sequence_ranks: SequenceRanks | None) -> Iterator[ModelInputs]:
    """Yield inputs of two sizes, with and without shared prompts.

    The first size compiles, the second makes the compiled code independent of the size.
    """
    for length, same_prompt in ((5, None), (9, np.array([0, 0, 1]))):
        ids = Ragged.from_lengths(np.zeros(3 * length, np.int32), np.full(3, length))
        yield pack_rows(
            ids, ids, remove_padding=True, device=device, same_prompt=same_prompt, sequence_ranks=sequence_ranks
        )


def run(module: PolicyModel, inputs: ModelInputs) -> None:
    """Run every kind of pass that a run makes: without gradients (with and without adapters), and with gradients."""
    with torch.no_grad():
        module(inputs, temperature=1.0)
        with module.adapters.switched_off() if module.adapters is not None else nullcontext():
            module(inputs, temperature=1.0)
    module(inputs, temperature=1.0).log_probs.sum().backward()


def first_layers(module: PolicyModel) -> None:
    """Cut a skeleton after the last layer that is the first of its shape."""
    layers = module.backbone.base_model.layers
    config = module.backbone.config.get_text_config()
    kinds = config.to_dict().get("layer_types") or [""] * len(layers)
    shapes = [(kind, str(layer)) for kind, layer in zip(kinds, layers, strict=True)]
    config.num_hidden_layers = max(shapes.index(shape) for shape in shapes) + 1
    del layers[config.num_hidden_layers :]


def trial(spec: LayerSpec) -> None:
    """Compile the first layers, with zero weights, as the model of the run will."""
    torch.set_num_threads(spec.num_threads)
    device, model = torch.device(spec.device), dict(spec.model)
    config = ModelConfig(**{**model, "lora": LoraConfig(**model["lora"])})
    dtype = getattr(torch, spec.dtype)
    stats = TokenStatsFunction(budget_mib=1)
    module = policy_skeleton(config.path, model=config, kernel=spec.kernel, dtype=dtype, token_stats=stats)
    first_layers(module)
    if config.lora.rank:
        module.add_adapters(config.lora)
    module.to(dtype).to_empty(device=device)
    module.set_requires_grad(is_frozen=False)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    compile_on_first_call(module)
    for inputs in warm_up_inputs(device, None):
        run(module, inputs)


if __name__ == "__main__":
    trial(LayerSpec(**json.loads(sys.argv[1])))
