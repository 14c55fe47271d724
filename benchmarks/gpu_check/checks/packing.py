"""Compare log-probs and gradients of a policy on packed rows with those on padded rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.gpu_check.policies import model_path, policy, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.backends.fsdp.optim import local_shard
from verl_like.config.schema import OptimConfig

# In float32 only the order of sums differs, about 1e-6 of each number. In bfloat16 both sides have independent errors;
# checks/precision.py bounds their mean, and here they are relative to the gradient.
MAX_GAP = {"float32": 1e-3, "bfloat16": 0.1}
MAX_SHARE = {"float32": 1e-3, "bfloat16": 0.1}


def check(scene: Scene) -> Findings:
    found = Findings()
    for dtype in scene.dtypes:
        packed, padded = (_log_probs_and_gradients(scene, dtype, remove_padding=way) for way in (True, False))
        gap = float(np.abs(packed[0] - padded[0]).max())
        found.add(f"{dtype}_gap_max_nats", gap, at_most=MAX_GAP[dtype])
        apart = torch.stack([(a - b).norm() for a, b in zip(packed[1], padded[1], strict=True)]).norm()
        share = float(apart / torch.stack([gradient.norm() for gradient in padded[1]]).norm())
        found.add(f"{dtype}_gradient_gap_share", share, at_most=MAX_SHARE[dtype])
    return found


def _log_probs_and_gradients(
    scene: Scene, dtype: str, *, remove_padding: bool
) -> tuple[NDArray[np.float32], list[Tensor]]:
    path = model_path(scene)
    rows = uneven_rows(scene, path)
    # Several passes, so that their gradients add up.
    max_tokens = 4 * int((rows.ragged("prompt_ids").lengths + rows.ragged("response_ids").lengths).max())
    engine = policy(scene, path, dtype=dtype, remove_padding=remove_padding, max_tokens_per_micro_batch=max_tokens)
    log_probs = engine.forward_log_probs(rows, temperature=1.0)["log_probs"]
    optim = OptimConfig(max_grad_norm=1e9)
    learner = engine.learner(optim, total_updates=0, max_response_tokens=1)
    learner.update(rows, SftLoss())
    # After the first update AdamW's first moment is the gradient times (1 - beta1).
    moments = (local_shard(state["exp_avg"]) for state in learner.optimizer.state.values())
    return log_probs, [moment / (1 - optim.beta1) for moment in moments]
