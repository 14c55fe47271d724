"""Measure the host memory of loading a model on each rank: ``python -m benchmarks.load_memory [--ranks N ...]``.

A model is written to disk and loaded by N ranks over gloo, as hybrid workers load their actor. Each rank counts the
bytes that torch allocates from the first call of the loader to its return, and samples its anonymous memory; the larger
peak counts. A rank must keep only its shard. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks._machine import print_result

RANKS = (1, 2, 4)
TIMEOUT_S = 300.0
SAMPLE_EVERY_S = 0.001


def write(folder: Path, *, num_layers: int, dtype: str) -> None:
    """Write a Qwen3 of 63 MB per layer and 262 MB outside the layers, in float32.

    Both are large compared with the 25 MB by which a process grows whatever it loads.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=num_layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=64,
        dtype=dtype,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)


def load(rank: int, num_ranks: int, folder: Path, answers: Any) -> None:
    """Load on one rank, and put the bytes into ``answers``."""
    os.environ |= {"OMP_NUM_THREADS": "1"}
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    from benchmarks._allocated import most_allocated
    from verl_like.backends.base import EngineSettings
    from verl_like.backends.fsdp.optim import local_shard
    from verl_like.backends.fsdp.policy import FsdpPolicy
    from verl_like.config.schema import FsdpConfig, ModelConfig

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store{num_ranks}"), num_ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=TIMEOUT_S))
    settings = EngineSettings(
        model=ModelConfig(path=str(folder)),
        fsdp=FsdpConfig(shard_size="all"),
        device=torch.device("cpu"),
        max_tokens_per_micro_batch="1024",
    )
    with AnonymousPeak() as anonymous, profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        engine = FsdpPolicy(settings)
    # torch counts a mapped file as allocated, but the system can reclaim its pages at any time.
    mapped = {file.stat().st_size for file in folder.glob("*.safetensors")}
    peak = most_allocated(profiled, but=mapped)
    shards = [local_shard(parameter) for parameter in engine.module.parameters()]
    layer = engine.module.backbone.base_model.layers[0]
    answers.put(
        {
            "allocated_peak_bytes": peak,
            "anonymous_peak_bytes": anonymous.peak_bytes,
            "peak_bytes": max(peak, anonymous.peak_bytes),
            "shard_bytes": sum(shard.numel() * shard.itemsize for shard in shards),
            "layer_bytes": sum(p.numel() * p.itemsize for p in layer.parameters()),
            "model_bytes": sum(p.numel() * p.itemsize for p in engine.module.parameters()),
        }
    )
    dist.barrier()
    dist.destroy_process_group()


class AnonymousPeak:
    """Peak growth of this process's anonymous memory, sampled every millisecond."""

    def __enter__(self) -> AnonymousPeak:
        self._before = self._bytes()
        self.peak_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)

    def _watch(self) -> None:
        while not self._is_over.is_set():
            self.peak_bytes = max(self.peak_bytes, self._bytes() - self._before)
            time.sleep(SAMPLE_EVERY_S)

    @staticmethod
    def _bytes() -> int:
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
        return int(line.split()[1]) * 1024


def measure(folder: Path, num_ranks: int) -> dict[str, float]:
    """Return the worst rank's peak over the bytes that it must hold."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=load, args=(rank, num_ranks, folder, answers)) for rank in range(num_ranks)]
    for rank in ranks:
        rank.start()
    found = [answers.get(timeout=TIMEOUT_S) for _ in ranks]
    for rank in ranks:
        rank.join(TIMEOUT_S)
    for rank in found:
        rank["peak_over_shard_plus_layer"] = round(rank["peak_bytes"] / (rank["shard_bytes"] + rank["layer_bytes"]), 3)
    return max(found, key=over)


def over(found: dict[str, float]) -> float:
    """Return the peak as a multiple of shard plus layer."""
    return found["peak_over_shard_plus_layer"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--layers", type=int, default=12)
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for dtype in ("float32", "bfloat16"):  # of the files; master weights are float32
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), num_layers=arguments.layers, dtype=dtype)
            for num_ranks in arguments.ranks:
                found[f"{dtype} files, {num_ranks} ranks"] = measure(Path(folder), num_ranks)
    print_result({"peak_over_shard_plus_layer": max(map(over, found.values())), "by_case": found})


if __name__ == "__main__":
    main()
