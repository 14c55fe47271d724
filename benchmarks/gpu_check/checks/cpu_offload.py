"""Update a policy in host memory: same weights as on the GPU, GPU memory freed, and the cost in time."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu_check.checks.offload import FREED_SHARE, GIB, differing, state_of
from benchmarks.gpu_check.policies import model_path, policy, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.backends.fsdp.optim import local_shard
from verl_like.config.schema import OptimConfig

LR = 1e-3
# Gradients differ only by the order of some sums; an eps as large as the gradients keeps Adam from amplifying that.
MAX_GAP = LR / 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Weights and moments after two updates; peak memory and seconds of the second update."""

    state: dict[str, Tensor]
    peak_bytes: int
    update_s: float
    not_on_host: int  # number of parameters on the GPU
    differ_when_loaded: list[str]
    synced_gap: float  # between the weights that an engine receives and the policy's


def check(scene: Scene) -> Findings:
    found = Findings()
    path = model_path(scene)
    plain, on_host = (_run(scene, path, cpu_offload=is_on_host) for is_on_host in (False, True))
    gap = max(
        float((plain.state[name] - value).abs().max()) for name, value in on_host.state.items() if "/" not in name
    )
    state_gib = sum(value.nbytes for value in on_host.state.values()) / GIB
    found.must(not on_host.not_on_host, f"{on_host.not_on_host} parameters are on the GPU, expected none")
    lost = on_host.differ_when_loaded
    found.must(not lost, f"{len(lost)} tensors restored from a checkpoint differ, among them {lost[:3]}; expected none")
    found.add("weights_gap_max", gap, at_most=MAX_GAP)
    found.add("synced_gap_max", on_host.synced_gap, at_most=0.0)
    found.add("freed_gib", (plain.peak_bytes - on_host.peak_bytes) / GIB, at_least=FREED_SHARE * state_gib)
    found.add("update_slowdown", on_host.update_s / plain.update_s)
    return found


def _run(scene: Scene, path: Path, *, cpu_offload: bool) -> Run:
    engine = policy(scene, path, dtype="float32", rollout_dtype="float32", cpu_offload=cpu_offload)
    optim = OptimConfig(lr=LR, eps=1e-3)
    learner = engine.learner(optim, total_updates=0, max_response_tokens=1)
    rows = uneven_rows(scene, path)
    learner.update(rows, SftLoss())
    torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    learner.update(rows, SftLoss())
    torch.cuda.synchronize()
    update_s, peak_bytes = time.perf_counter() - started, torch.cuda.max_memory_allocated()
    state, folder = state_of(learner), scene.of("cpu_offload") / f"saved-{cpu_offload}"
    learner.save(folder)
    learner.load(folder)
    shutil.rmtree(folder)
    synced = {f"backbone.{name}": weight.cpu() for name, weight in engine.named_weights()}
    return Run(
        state=state,
        peak_bytes=peak_bytes,
        update_s=update_s,
        not_on_host=sum(local_shard(parameter).is_cuda for parameter in engine.module.parameters()),
        differ_when_loaded=differing(state, state_of(learner)),
        synced_gap=max(float((state[name] - weight).abs().max()) for name, weight in synced.items() if name in state),
    )
