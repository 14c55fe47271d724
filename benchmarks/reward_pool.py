"""Measure the scorer processes alone: ``python -m benchmarks.reward_pool [--samples N]``.

Measures samples per second of a pure-Python scorer that computes for 5 ms, with one process and with two, and the time
that the pool adds to a sample if the scorer does nothing. Uses the interface that the training uses, on a real Ray:
blocks of token ids in, row metadata out. Needs otherwise idle cores. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import ray

from benchmarks._machine import print_result
from recipes.arithmetic.model import write_model
from verl_like.config.schema import ClusterConfig, RewardConfig
from verl_like.controller.placement import ray_cluster
from verl_like.controller.remote_batch import BlockRef, Facts
from verl_like.data.templates import load_tokenizer
from verl_like.protocol import DataProto, Ragged
from verl_like.reward.decoding import Decoder
from verl_like.reward.pool import RewardPool

SCORERS = """
import time

def busy(solution_str):
    end = time.thread_time() + 0.005  # of CPU, so that a scorer that has to share its core does not finish as early
    total = 0
    while time.thread_time() < end:
        total += sum(range(50))
    return 1.0

def trivial(solution_str):
    return 1.0
"""
BUSY_S = 0.005
BLOCK_ROWS = 64
RESPONSE_TOKENS = 64
ROUNDS = 5


def blocks(num_samples: int) -> list[tuple[Facts, BlockRef]]:
    """Return blocks with random responses, and the metadata of their rows."""
    rng = np.random.default_rng(0)
    found = []
    for first in range(0, num_samples, BLOCK_ROWS):
        rows = min(BLOCK_ROWS, num_samples - first)
        ids = rng.integers(4, 12, rows * RESPONSE_TOKENS, dtype=np.int32)
        inputs = [
            {"data_source": "s", "ground_truth": "1", "extra_info": {}, "messages": "1+1=", "columns": {}}
            for _ in range(rows)
        ]
        table = DataProto(
            {
                "prompt_text": ["1+1="] * rows,
                "response_ids": Ragged.from_lengths(ids, np.full(rows, RESPONSE_TOKENS)),
                "reward_inputs": inputs,
            }
        )
        found.append(({"uid": np.arange(rows)}, ray.put(table)))
    return found


def seconds(folder: Path, function: str, *, num_workers: int, num_samples: int) -> float:
    """Return the median time to score all samples, submitted at once."""
    config = RewardConfig(function=f"{folder}/scorers.py:{function}", num_workers=num_workers)
    pool = RewardPool(
        config,
        Decoder(load_tokenizer(str(folder / "model")), trust_remote_code=False),
        failures=folder,
        env={},
        timeout_s=300,
    )
    try:
        pool.wait_ready(timeout_s=60)
        found = []
        for _ in range(ROUNDS + 1):
            begun = blocks(num_samples)
            started = time.perf_counter()
            scoring = pool.open()
            for facts, block in begun:
                scoring.begin(facts, block)
            scores = scoring.scores()
            found.append(time.perf_counter() - started)
            assert (scores.score == 1.0).all(), "a sample was not scored"
        return median(found[1:])
    finally:
        pool.shut_down()


def measure(num_samples: int) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as name,
        ray_cluster(ClusterConfig(device="cpu", object_store_memory_gib=0.25), "bench"),
    ):
        folder = Path(name)
        write_model(folder / "model", seed=0)
        (folder / "scorers.py").write_text(SCORERS)
        one = seconds(folder, "busy", num_workers=1, num_samples=num_samples)
        two = seconds(folder, "busy", num_workers=2, num_samples=num_samples)
        trivial = seconds(folder, "trivial", num_workers=1, num_samples=num_samples)
    return {
        "samples": num_samples,
        "samples_per_s_1": round(num_samples / one, 1),
        "samples_per_s_2": round(num_samples / two, 1),
        "speedup": round(one / two, 3),
        "overhead_ms": round(trivial / num_samples * 1e3, 4),
        "overhead_of_busy_ms": round((one / num_samples - BUSY_S) * 1e3, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1024)
    print_result(measure(parser.parse_args().samples))


if __name__ == "__main__":
    main()
