"""A minimal update loop as a baseline: packed rows through the model, a clipped policy loss.

The model, its attention over packed rows, its matrix products by the faster library and the optimiser's kernel are
ours, so that the comparison covers only the code around them. Needs a process group.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

from verl_like.ops.attention import PACKED_ATTENTION, register_packed_attention
from verl_like.ops.matmul import with_fast_matmul
from verl_like.ops.packing import ModelInputs, pack_rows
from verl_like.ops.partition import micro_batches
from verl_like.protocol import DataProto

CPU = torch.device("cpu")
CLIP_RATIO, MAX_GRAD_NORM, LR = 0.2, 1.0, 1e-6


class Packed(nn.Module):
    """Log-probs of the responses, [K_r]."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        register_packed_attention()
        self.model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation=PACKED_ATTENTION
        ).eval()
        with_fast_matmul(self.model)

    def forward(self, inputs: ModelInputs) -> Tensor:
        states = self.model.base_model(
            input_ids=inputs.input_ids,
            position_ids=inputs.position_ids,
            use_cache=False,
            attention_mask=None,
            segments=inputs.segments,
            kernel="sdpa",
        ).last_hidden_state[0]
        logits = self.model.get_output_embeddings()(states[inputs.predictors])
        return -F.cross_entropy(logits, inputs.targets, reduction="none")


def bare_update(kind: str, path: Path, table: DataProto) -> Callable[[int], None]:
    """Return a function that runs an update of these rows, given the tokens of a micro-batch.

    Args:
        kind: "single", "ddp" or "fsdp2".
        table: has ``old_log_probs`` and ``advantages``.
    """
    packed = Packed(path)
    model: nn.Module = packed
    if kind == "ddp":
        model = DistributedDataParallel(packed)
    elif kind == "fsdp2":
        fully_shard(packed, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), reshard_after_forward=False)
    optimizer = AdamW(model.parameters(), lr=LR, fused=True)
    prompts, responses = table.ragged("prompt_ids"), table.ragged("response_ids")
    lengths = prompts.lengths + responses.lengths - 1
    num_tokens = int(responses.lengths.sum()) * dist.get_world_size()

    def update(max_tokens: int) -> None:
        parts = micro_batches(lengths, max_tokens)
        for index, part in enumerate(parts):
            part = part[lengths[part].argsort()]
            _expect(model, is_last=index == len(parts) - 1)
            inputs = pack_rows(prompts.take(part), responses.take(part), remove_padding=True, device=CPU)
            old, advantages = (
                torch.from_numpy(table.ragged(n).take(part).values) for n in ("old_log_probs", "advantages")
            )
            ratio = (model(inputs) - old).exp()
            worse = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP_RATIO, 1 + CLIP_RATIO) * advantages)
            (-worse.sum() / num_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def _expect(model: nn.Module, *, is_last: bool) -> None:
    """Reduce gradients only in the last backward pass."""
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = is_last  # the flag that no_sync sets
    elif isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(is_last)
        model.set_is_last_backward(is_last)
        model.set_reshard_after_backward(is_last)
