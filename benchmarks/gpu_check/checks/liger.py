"""Compare Liger's norms and feed-forward kernels with PyTorch's: log-probs, weights after an update, and speed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.gpu_check.checks.cpu_offload import LR, MAX_GAP
from benchmarks.gpu_check.checks.kernels import MAX_GAP as MAX_LOG_PROB_GAP
from benchmarks.gpu_check.policies import model_path, policy, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.config.schema import OptimConfig


def check(scene: Scene) -> Findings:
    found = Findings()
    path = model_path(scene)
    half, fused_half = (_run(scene, path, kernels, "bfloat16") for kernels in ("torch", "liger"))
    whole, fused_whole = (_run(scene, path, kernels, "float32") for kernels in ("torch", "liger"))
    gap = np.abs(fused_half.log_probs - half.log_probs).max()
    found.add("log_probs_gap_max_nats", float(gap), at_most=MAX_LOG_PROB_GAP)
    gaps = [float((fused_whole.weights[name] - weight).abs().max()) for name, weight in whole.weights.items()]
    found.add("weights_gap_max", max(gaps), at_most=MAX_GAP)
    found.add("update_speedup", half.update_s / fused_half.update_s)
    return found


class FusedRun(NamedTuple):
    """Log-probs [K], weights after two updates, and the seconds of the second."""

    log_probs: NDArray[np.float32]
    weights: dict[str, Tensor]
    update_s: float


def _run(scene: Scene, path: Path, kernels: str, dtype: str) -> FusedRun:
    engine = policy(scene, path, dtype=dtype, rollout_dtype="float32", kernels=kernels)
    learner = engine.learner(OptimConfig(lr=LR, eps=1e-3), total_updates=0, max_response_tokens=1)
    rows = uneven_rows(scene, path)
    log_probs = engine.forward_log_probs(rows, temperature=1.0)["log_probs"]
    learner.update(rows, SftLoss())
    torch.cuda.synchronize()
    started = time.perf_counter()
    learner.update(rows, SftLoss())
    torch.cuda.synchronize()
    update_s = time.perf_counter() - started
    return FusedRun(log_probs, {name: weight.cpu() for name, weight in engine.named_weights()}, update_s)
