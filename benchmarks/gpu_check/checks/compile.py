"""Compile the log-prob function: within its deadline, with the numbers of eager mode, and how much faster it is."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_check.policies import model_path, policy, rows, synchronize
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.backends.fsdp.policy import FsdpPolicy
from verl_like.protocol import DataProto

DEADLINE_S = 120.0
# Both compute the same matrix product in the forward pass's dtype, then sum in float32 in different orders.
MAX_GAP = 1e-3
NUM_TIMES = 5


def check(scene: Scene) -> Findings:
    found = Findings()
    path = model_path(scene)
    length = 16 if scene.is_small else 512
    table = rows(path, [length] * 16, [length] * 16)
    engine = policy(scene, path, use_torch_compile=True)
    eager, eager_s = _timed(scene, engine, table)
    started = time.perf_counter()
    is_compiled = engine.warm_up(DEADLINE_S)
    found.add("compile_s", time.perf_counter() - started)
    found.must(is_compiled, f"not compiled, expected compilation within {DEADLINE_S:.0f} s")
    compiled, compiled_s = _timed(scene, engine, table)
    found.must(_runs_compiled(engine, table), "a forward pass ran no compiled code, expected the log-probs")
    found.add("gap_max_nats", float(np.abs(compiled - eager).max()), at_most=MAX_GAP)
    found.add("forward_speedup", eager_s / compiled_s)
    return found


def _runs_compiled(engine: FsdpPolicy, table: DataProto) -> bool:
    """Return whether a forward pass runs compiled code instead of silently falling back to eager mode."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        engine.forward_log_probs(table, temperature=1.0)
    return any(event.key.startswith("Torch-Compiled Region") for event in profiled.key_averages())


def _timed(scene: Scene, engine: FsdpPolicy, table: DataProto) -> tuple[NDArray[np.float32], float]:
    """Return log-probs and the median seconds of a forward pass, without the first one."""
    seconds = []
    log_probs = engine.forward_log_probs(table, temperature=1.0)["log_probs"]
    for _ in range(NUM_TIMES):
        synchronize(scene)
        started = time.perf_counter()
        engine.forward_log_probs(table, temperature=1.0)  # ends on the host, so it waits for the GPU
        seconds.append(time.perf_counter() - started)
    return log_probs, median(seconds)
