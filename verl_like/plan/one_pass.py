"""A pass of a model on a rank, and the bytes of a dense decoder layer in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verl_like.ops.tiles import FLOAT32
from verl_like.plan.shape import ModelShape


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """One forward (and backward) pass of a model on a rank.

    Args:
        count: number of passes in an update.
        tokens: tokens of the largest micro-batch; ``response_tokens`` of them are predicted.
        logits_budget: bytes of logits that may exist at once; 0 for a model without logits.
        learns: whether a backward pass follows.
        recomputed: decoder layers that the backward pass recomputes, the first ones; ``recomputed_vision`` blocks of
            what reads pictures.
        rows_per_prompt: rows that share a prompt.
        shared_keys: keys that are copied for rows with a shared prompt; 0 if no prompt is shared.
        pictures: number of pictures, each of ``picture_tokens`` tokens.
    """

    count: int
    tokens: int
    response_tokens: int
    logits_budget: int
    learns: bool
    recomputed: int
    rows_per_prompt: int = 1
    shared_keys: int = 0
    recomputed_vision: int = 0
    pictures: int = 0
    picture_tokens: int = 0

    def without_backward(self) -> Pass:
        return replace(self, learns=False)


def layer_bytes_per_token(
    shape: ModelShape, itemsize: int, *, norms_learn: bool = True, is_fused: bool = False
) -> float:
    """Return the bytes per token that a decoder layer keeps for its backward pass.

    Each of two norms keeps its input in float32, its normalised input in float32 if it is trained, and its output; as a
    single kernel, its input and output. Queries, keys and values are kept before and after rotation. Attention keeps
    its output. The feed-forward part keeps four tensors of its width, with a fused product three.
    """
    attention = shape.num_heads * shape.head_dim
    of_norm = 2 * itemsize if is_fused else FLOAT32 * (1 + norms_learn) + itemsize
    rotated = itemsize * attention + key_bytes_per_token(shape, itemsize)
    wide = (4 - is_fused) * shape.intermediate_size
    return 2 * of_norm * shape.hidden_size + 2 * rotated + itemsize * (attention + wide)


def key_bytes_per_token(shape: ModelShape, itemsize: int) -> float:
    """Return the bytes of a token's keys and values in one layer."""
    return 2.0 * itemsize * shape.num_kv_heads * shape.head_dim
