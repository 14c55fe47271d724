"""Run vLLM in the policy's process: log-probs, sync, sleep and wake."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu_check.engines import GIB, engine, generated, mean_gap, requests, sync, weight_bytes
from benchmarks.gpu_check.policies import model_path, policy
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.backends.base import RolloutEngine
from verl_like.config.schema import ModelConfig
from verl_like.plan.shape import model_shape

FREED_SHARE = 0.95  # of weights and cache: memory is mapped in blocks, and the last one is partly empty
NUM_SAMPLES, NUM_GREEDY = 64, 8


def check(scene: Scene) -> Findings:
    found = Findings()
    rollout = engine(scene)
    actor = policy(scene, model_path(scene))
    sync(scene, rollout, actor, 0)
    gap = mean_gap(rollout, actor, requests(scene, NUM_SAMPLES, temperature=1.0))
    found.add("log_prob_gap_mean", gap, at_most=scene.max_engine_gap)

    asked = requests(scene, NUM_GREEDY, temperature=0.0)
    _, sync_s = sync(scene, rollout, actor, 1)
    found.add("sync_gib_per_s", weight_bytes(actor) / GIB / sync_s)
    before = generated(rollout, asked)
    freed_gib = _freed_gib(scene, rollout)
    wake_s, _ = sync(scene, rollout, actor, 2)
    after = generated(rollout, asked)
    changed = sum(one.response_ids != other.response_ids for one, other in zip(before, after, strict=True))
    found.must(not changed, f"{changed} of {NUM_GREEDY} greedy responses changed over sleep and wake, expected none")
    if scene.device == "cpu":
        found.notes.append("vLLM on CPU keeps its memory during sleep, so sleep_freed_gib and wake_s are not measured")
        found.figures |= {"sleep_freed_gib": None, "wake_s": None}
        return found
    least = weight_bytes(actor) + _cache_bytes(scene, rollout)
    found.add("sleep_freed_gib", freed_gib, at_least=FREED_SHARE * least / GIB)
    found.add("wake_s", wake_s)
    return found


def _freed_gib(scene: Scene, rollout: RolloutEngine) -> float:
    """Put the engine to sleep and return the GPU memory that this frees."""
    if scene.device == "cpu":
        rollout.sleep()
        return 0.0
    torch.cuda.empty_cache()  # sleep does the same
    before = torch.cuda.mem_get_info()[0]
    rollout.sleep()
    return (torch.cuda.mem_get_info()[0] - before) / GIB


def _cache_bytes(scene: Scene, rollout: Any) -> int:
    """Return the bytes of the KV cache, from the model's shape and vLLM's cache config (a private attribute)."""
    cache = rollout._engine.vllm_config.cache_config
    path = str(model_path(scene))
    elements = model_shape(path, ModelConfig(path=path)).kv_elements_per_token
    return cache.num_gpu_blocks * cache.block_size * elements * torch.bfloat16.itemsize
