"""Work of a model's passes on a GPU, counted from a decoder layer and the output layer of its shape.

Both are linear in tokens, so each is counted for two numbers of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from verl_like.backends.fsdp.engine import recompute
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.segments import segments
from verl_like.ops.tiles import OutputLayer
from verl_like.plan.counter import (
    COUNTED,
    Work,
    WorkCounter,
    fuse_layers,
    fused_tile_functions,
    register_counted_attention,
)
from verl_like.plan.shape import ModelShape

LAYER_TOKENS, OUTPUT_TOKENS = (256, 512), (4096, 8192)


@dataclass(frozen=True, kw_only=True, slots=True)
class PassWork:
    """Work of the parts of a pass: forward, backward, and what backward recomputes."""

    forward: Work
    backward: Work
    recomputed: Work = Work()


@dataclass(frozen=True, slots=True)
class _Line:
    """Work for each number of tokens, through two counts."""

    few: tuple[int, PassWork]
    many: tuple[int, PassWork]

    def at(self, tokens: float) -> PassWork:
        (low, few), (high, many) = self.few, self.many
        part = (tokens - low) / (high - low)
        return PassWork(
            forward=few.forward * (1 - part) + many.forward * part,
            backward=few.backward * (1 - part) + many.backward * part,
            recomputed=few.recomputed * (1 - part) + many.recomputed * part,
        )


def layer_work(
    shape: ModelShape, tokens: float, *, dtype: torch.dtype, is_fused: bool, has_frozen_weights: bool = False
) -> PassWork:
    """Return the work of a decoder layer of a pass, without that of attention's products.

    Args:
        is_fused: whether norms and the feed-forward part are single kernels.
        has_frozen_weights: whether only gradients of states are computed, because adapters learn.
    """
    return _layer_line(shape, dtype, is_fused, has_frozen_weights).at(tokens)


@cache
def _layer_line(shape: ModelShape, dtype: torch.dtype, is_fused: bool, has_frozen_weights: bool) -> _Line:
    def counted(tokens: int, *, is_recomputed: bool) -> PassWork:
        layer = _layer(shape, dtype)
        if is_fused:
            fuse_layers(layer)
        layer.requires_grad_(not has_frozen_weights)
        return _counted_layer(layer, shape, dtype, tokens, is_recomputed=is_recomputed)

    def parts(tokens: int) -> PassWork:
        plain, again = (counted(tokens, is_recomputed=is_recomputed) for is_recomputed in (False, True))
        return PassWork(forward=plain.forward, backward=plain.backward, recomputed=again.backward - plain.backward)

    few, many = LAYER_TOKENS
    return _Line((few, parts(few)), (many, parts(many)))


def _counted_layer(
    layer: nn.Module, shape: ModelShape, dtype: torch.dtype, tokens: int, *, is_recomputed: bool
) -> PassWork:
    if is_recomputed:
        recompute(layer)
    states = torch.empty(1, tokens, shape.hidden_size, dtype=dtype, device="meta", requires_grad=True)
    angles = torch.empty(1, tokens, shape.head_dim, dtype=dtype, device="meta")
    one_row = segments(np.array([tokens]), device=torch.device("meta"))
    with WorkCounter() as counter:
        out = layer(states, attention_mask=None, position_embeddings=(angles, angles), segments=one_row, kernel=COUNTED)
        forward = counter.take()
        out.backward(torch.empty_like(out))
    return PassWork(forward=forward, backward=counter.work)


def _layer(shape: ModelShape, dtype: torch.dtype) -> nn.Module:
    """Return a Llama layer of these widths; layers of other families have the same large operations."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    from verl_like.ops.attention import PACKED_ATTENTION, register_packed_attention

    register_packed_attention()
    register_counted_attention()
    config = LlamaConfig(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        num_hidden_layers=1,
        vocab_size=8,
    )
    config._attn_implementation = PACKED_ATTENTION
    with torch.device("meta"):
        layer: nn.Module = LlamaDecoderLayer(config, 0).to(dtype)
    return layer


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputPass:
    """How the output layer and the log-prob function run.

    Args:
        budget_mib: size of logits that exist at the same time.
    """

    dtype: torch.dtype
    budget_mib: int
    is_compiled: bool
    entropy: bool
    learns: bool
    has_frozen_weights: bool = False


def output_work(shape: ModelShape, tokens: float, how: OutputPass) -> PassWork:
    """Return the work of the output layer and the log-prob function for this many response tokens."""
    return _output_line(shape, how).at(tokens)


@cache
def _output_line(shape: ModelShape, how: OutputPass) -> _Line:
    few, many = OUTPUT_TOKENS
    return _Line((few, _counted_output(shape, few, how)), (many, _counted_output(shape, many, how)))


def _counted_output(shape: ModelShape, tokens: int, how: OutputPass) -> PassWork:
    stats = TokenStatsFunction(budget_mib=how.budget_mib)
    hidden = torch.empty(tokens, shape.hidden_size, dtype=how.dtype, device="meta", requires_grad=how.learns)
    weight = torch.empty(shape.vocab_size, shape.hidden_size, dtype=how.dtype, device="meta")
    weight.requires_grad_(how.learns and not how.has_frozen_weights)
    targets = torch.empty(tokens, dtype=torch.int64, device="meta")
    with WorkCounter() as counter, torch.set_grad_enabled(how.learns):
        if how.is_compiled:
            stats.tile_functions = fused_tile_functions(counter)
        found = stats(hidden, OutputLayer(weight=weight), targets, temperature=1.0, entropy=how.entropy)
        forward = counter.take()
        if how.learns:
            outputs = [each for each in (found.log_probs, found.entropy) if isinstance(each, Tensor)]
            torch.autograd.backward(outputs, [torch.empty_like(each) for each in outputs])
    return PassWork(forward=forward, backward=counter.work)
