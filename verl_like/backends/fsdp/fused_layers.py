"""Replace norms and gated feed-forward layers of a model with Liger's fused kernels, which need a GPU.

Liger's functions for whole model families are not used, because they patch transformers for every model of the process.
Its fused cross-entropy is not used either: it has no entropy and no temperature, and it always recomputes the logits in
backward, which our function does only beyond its budget. Its rotary embedding replaces a function of a transformers
module, not a layer. Checked against liger-kernel 0.8.5.
"""

from __future__ import annotations

import importlib
import logging
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

log = logging.getLogger(__name__)

# Families whose norm casts as Llama's does, with the feed-forward layer down(act(gate(x)) * up(x)); as of transformers
# 5.19.
_FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "Qwen3Moe")
_NORMS = {f"{family}RMSNorm" for family in (*_FAMILIES, "Phi3")}
_GATED = {f"{family}MLP" for family in _FAMILIES}
_SILU = ("silu", "swish")


def with_fused_layers(module: nn.Module, *, is_required: bool = True) -> None:
    """Make layers compute with Liger's kernels if it has the same function; names and parameters stay.

    Args:
        is_required: whether a model that cannot have these kernels is an error; otherwise it stays as it is.

    Raises:
        ValueError: if there is no GPU, Liger cannot be imported, or the model has no such layer.
    """
    if not is_required and not (torch.cuda.is_available() and find_spec("liger_kernel")):
        return
    try:
        liger = _liger()
    except ValueError as error:
        if is_required:
            raise
        log.warning("%s The layers are not fused.", error)
        return
    layers = [layer for layer in module.modules() if is_norm(layer) or is_gated(layer)]
    if not layers and not is_required:
        return
    if not layers:
        raise ValueError(
            f"model.kernels is liger, but {type(module).__name__} has no layer that these kernels compute; expected a "
            f"model of {', '.join(_FAMILIES)} or Phi3. Set model.kernels=torch."
        )
    for layer in layers:
        if is_norm(layer):
            # An in-place kernel would overwrite a gradient that other code may still read.
            like = liger.LigerRMSNorm(1, eps=layer.variance_epsilon, in_place=False)
            layer.__dict__.update({name: value for name, value in vars(like).items() if not name.startswith("_")})
            layer.__class__ = liger.LigerRMSNorm
        else:
            layer.__class__ = liger.LigerSwiGLUMLP
    module.eval()


def has_fused_layers(module: nn.Module) -> bool:
    """Return whether any layer computes with Liger's kernels."""
    return any(type(layer).__module__.startswith("liger_kernel") for layer in module.modules())


def _liger() -> Any:
    if not torch.cuda.is_available():
        raise ValueError("model.kernels is liger, which needs a GPU, and there is none. Set model.kernels=torch.")
    try:
        return importlib.import_module("liger_kernel.transformers")
    except ImportError as error:
        raise ValueError(
            f"liger-kernel cannot be imported ({error}). Run `pip install liger-kernel`, or set model.kernels=torch."
        ) from error


def is_norm(layer: nn.Module) -> bool:
    return type(layer).__name__ in _NORMS


def is_gated(layer: Any) -> bool:
    return type(layer).__name__ in _GATED and layer.config.hidden_act in _SILU
