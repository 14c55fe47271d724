"""Compare each kernel of packed attention in bfloat16 with plain transformers in float32, row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from benchmarks.gpu_check.policies import model_path, policy, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.ops.attention_kernels import is_hopper, resolve_kernel, vllm_flash3
from verl_like.protocol import DataProto

KERNELS = ("flash3", "flash", "varlen", "sdpa")
# The largest of some thousand errors is about five times their mean, which checks/precision.py bounds. A token that
# attends to too many or too few tokens has an error of the logits' spread, 0.6 nats.
MAX_GAP = 0.1


def check(scene: Scene) -> Findings:
    found = Findings()
    path = model_path(scene)
    rows = uneven_rows(scene, path)
    expected = plain_log_probs(scene, path, rows)
    for kernel in KERNELS:
        try:
            resolve_kernel(kernel, torch.device(scene.device), torch.bfloat16)
        except ValueError as error:
            found.notes.append(f"without {kernel}: {str(error).partition('. ')[0]}")
            continue
        engine = policy(scene, path, dtype="bfloat16", attention=kernel, is_frozen=True)
        gap = np.abs(engine.forward_log_probs(rows, temperature=1.0)["log_probs"] - expected)
        found.add(f"{kernel}_gap_max_nats", float(gap.max()), at_most=MAX_GAP)
    if scene.device == "cuda" and is_hopper(torch.device(scene.device)) and vllm_flash3() is not None:
        found.notes.append("flash and varlen: passes without gradients run FlashAttention 3 of vLLM")
    return found


@torch.no_grad()
def plain_log_probs(scene: Scene, path: Path, rows: DataProto) -> NDArray[np.float32]:
    """Return log-probs, [K] nats, by transformers alone: one row at a time, with its eager attention."""
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", dtype=torch.float32)
    model = model.to(scene.device).eval()
    found = []
    for prompt, response in zip(rows.ragged("prompt_ids"), rows.ragged("response_ids"), strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64)).to(scene.device)
        logits = model(ids[None]).logits[0, len(prompt) - 1 : -1]
        found.append(logits.log_softmax(-1).gather(-1, ids[len(prompt) :, None])[:, 0])
    return torch.cat(found).cpu().numpy()
