"""Copy weights from two ranks' shards into other parameters: ``python -m benchmarks.weight_sync``.

Compares ``stream_full_tensors``, as a weight sync uses it with the default bucket size, with a loop that calls
``full_tensor()`` for each parameter. Both copy every tensor into an existing one, as an engine does, and alternate: on
1,000 parameters of 4 KB and 4 of 16 MB, and on a model of 110 million parameters. The lower bound is a memory copy of
the same number of bytes on both ranks at once. Prints one JSON object as its last line; ``speedup_110m`` in it is the
model's ``speedup_vs_per_parameter``.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._machine import print_result
from benchmarks.update import SIZES, write_model
from verl_like.backends.allocator import allocator_environment

RANKS = 2
ROUNDS, WARM_UPS = 15, 2
TIMEOUT_S = 300.0
NUM_SMALL, SMALL_SIDE = 1000, 32
NUM_LARGE, LARGE_SIDE = 4, 2048


def rank_main(rank: int, store: Path, answers: Any) -> None:
    """Measure both cases on one rank; rank 0 returns the figures."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(store), RANKS),
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    found = {"mixed": compared(mixed_module()), "110M": compared(language_model(store.parent / "model"))}
    if rank == 0:
        answers.put(found)
    dist.barrier()
    dist.destroy_process_group()


def mixed_module() -> Any:
    """Return a module of many small parameters and a few large ones."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module = nn.Module()
    for index in range(NUM_SMALL):
        module.register_parameter(f"small{index}", nn.Parameter(torch.randn(SMALL_SIDE, SMALL_SIDE)))
    for index in range(NUM_LARGE):
        module.register_parameter(f"large{index}", nn.Parameter(torch.randn(LARGE_SIDE, LARGE_SIDE)))
    fully_shard(module, mesh=init_device_mesh("cpu", (RANKS,)))
    return module


def language_model(folder: Path) -> Any:
    """Return the model as an actor has it."""
    import torch

    from verl_like.backends.base import EngineSettings
    from verl_like.backends.fsdp.policy import FsdpPolicy
    from verl_like.config.schema import FsdpConfig, ModelConfig

    settings = EngineSettings(
        model=ModelConfig(path=str(folder)),
        fsdp=FsdpConfig(shard_size="all"),
        device=torch.device("cpu"),
        max_tokens_per_micro_batch="1024",
    )
    return FsdpPolicy(settings).module.backbone


def compared(module: Any) -> dict[str, float]:
    """Return medians over rounds in which all alternate, and medians of the rounds' ratios."""
    import torch

    from verl_like.backends.fsdp.gathering import gather_on
    from verl_like.backends.fsdp.weights import stream_full_tensors
    from verl_like.config.schema import RolloutConfig

    cpu, bucket_bytes = (torch.device("cpu"), int(RolloutConfig().sync_bucket_mib * 2**20))
    gather = gather_on(cpu, max_bytes=bucket_bytes)
    engine = {name: torch.zeros(p.shape) for name, p in module.named_parameters()}
    num_bytes = sum(tensor.nbytes for tensor in engine.values())
    source, target = torch.ones(num_bytes // 4), torch.zeros(num_bytes // 4)

    def ours() -> None:
        for name, tensor in stream_full_tensors(
            module.named_parameters(remove_duplicate=False),
            dtype=torch.float32,
            gather=gather,
            bucket_bytes=bucket_bytes,
        ):
            if name in engine:  # a tied parameter is yielded under each of its names
                engine[name].copy_(tensor)

    def one_by_one() -> None:
        for name, parameter in module.named_parameters():
            engine[name].copy_(parameter.full_tensor())

    calls = {"ours": ours, "full_tensor": one_by_one, "memcpy": lambda: target.copy_(source)}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for _ in range(WARM_UPS + ROUNDS):
            for name, call in calls.items():
                seconds[name].append(timed(call))
        before = gather.num_tables
        ours()
    own = seconds["ours"][WARM_UPS:]
    return {
        "s": round(median(own), 4),
        "full_tensor_s": round(median(seconds["full_tensor"][WARM_UPS:]), 4),
        "gib_per_s": round(num_bytes / 2**30 / median(own), 3),
        "fraction_of_memcpy": round(ratio(seconds["memcpy"][WARM_UPS:], own), 3),
        "collectives": gather.num_tables - before,
        "speedup_vs_per_parameter": round(ratio(seconds["full_tensor"][WARM_UPS:], own), 2),
        "s_per_billion_parameters": round(median(own) / num_bytes * 4e9, 2),
    }


def timed(call: Callable[[], object]) -> float:
    """Return the seconds until all ranks have finished."""
    import torch.distributed as dist

    dist.barrier()
    started = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - started


def ratio(above: list[float], below: list[float]) -> float:
    return median(a / b for a, b in zip(above, below, strict=True))


def main() -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", **allocator_environment()}  # as in workers
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "model", SIZES["110M"])
        answers = context.Queue()
        ranks = [
            context.Process(target=rank_main, args=(rank, Path(folder) / "store", answers)) for rank in range(RANKS)
        ]
        for rank in ranks:
            rank.start()
        found = answers.get(timeout=TIMEOUT_S)
        for rank in ranks:
            rank.join(TIMEOUT_S)
    speedup = found["110M"]["speedup_vs_per_parameter"]
    print_result({**found["mixed"], "speedup_110m": speedup, "by_case": found})


if __name__ == "__main__":
    main()
