"""Time moving the batch of a PPO step between two workers without arithmetic: ``python -m benchmarks.data_plane``.

The step is the real one (``PPOTrainer.step``), with every column: rollout, reward, log-probs, reference, values,
advantages, updates. The advantages are not computed either, except for ``step_s_with_advantages``. Peers are measured
if ``make peers`` has installed them: verl 0.9.1's DataProto through its driver, and TransferQueue through its client.
All alternate. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import ray

from benchmarks import _workload as workload
from benchmarks._idle import TIMEOUT_S, idle_stack, idle_trainer, step_config
from benchmarks._machine import print_result
from verl_like.config.schema import ClusterConfig
from verl_like.controller.placement import ray_cluster
from verl_like.controller.store import store_use
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import DataProto, Ragged
from verl_like.training.ppo import PPOTrainer

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".peers"
PEER_DEADLINE_S = 900
STORE_GIB = 0.5
SEED = 0
WARM_UP_STEPS, STEPS = 6, 9
ROUNDS = 3
RELEASE_S = 2.0  # Ray deletes unreferenced objects once a second


def measure(rows: int, *, block_kib: int, has_advantages: bool = False) -> dict[str, Any]:
    """Return the median seconds of a step, the driver's memory, and the use of the store.

    Args:
        has_advantages: compute advantages, by GAE with a KL penalty.
    """
    config = step_config(rows)
    response_lengths = workload.lengths(rows, SEED)
    payload = workload.payload_bytes(response_lengths)
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (
        ray_cluster(ClusterConfig(object_store_memory_gib=STORE_GIB), "bench"),
        tempfile.TemporaryDirectory() as folder,
    ):
        groups = [
            WorkerGroup(name, world_size=size, placement=None, env=environment, timeout_s=TIMEOUT_S)
            for name, size in (("worker", workload.NUM_WORKERS), ("advantages", 1))
        ]
        given = (response_lengths, block_kib * 1024, workload.NUM_WORKERS)
        idle = "benchmarks._idle:build_roles", given
        real = "verl_like.workers.advantages:build_roles", (config.algorithm, TIMEOUT_S)
        for group, (roles, needed) in zip(groups, (idle, real if has_advantages else idle), strict=True):
            _build(group, roles, needed)
        stack = idle_stack(config, workers=groups[0], advantages=groups[1], num_scorers=2)
        trainer = idle_trainer(PPOTrainer, config, Path(folder), stack)
        return _steps(trainer, payload) | {
            "tokens": rows * workload.PROMPT_LENGTH + int(response_lengths.sum()),
            "payload_bytes": payload,
        }


def _build(group: WorkerGroup, roles: str, needed: tuple[Any, ...]) -> None:
    group.build(roles, lambda rank: needed, timeout_s=TIMEOUT_S)
    group.wait_built(timeout_s=TIMEOUT_S)


def _steps(trainer: PPOTrainer, payload: int) -> dict[str, Any]:
    seconds: list[float] = []
    references: list[float] = []
    trainer.version = 0
    for step in range(1, WARM_UP_STEPS + 1):
        trainer.step(step)
    gc.collect()
    before = store_use()
    with workload.MemoryGrowth() as memory:
        for step in range(1, STEPS + 1):
            metrics = trainer.step(step)
            seconds.append(metrics["time/step_s"])
            references.append(metrics["store/live_references"])
    stages = {
        name[5:-2]: round(value, 4)
        for name, value in metrics.items()
        if name.startswith("time/") and name != "time/step_s"
    }
    moved = metrics["store/put_bytes"] + metrics["store/inlined_bytes"]
    time.sleep(RELEASE_S)
    after = store_use()
    assert before is not None and after is not None, "the object store did not report its usage"
    return {
        "step_s": median(seconds),
        "driver_rss_growth_mb": memory.mb,
        "put_over_payload": moved / payload,
        "stage_s": stages,
        "spilled_bytes": after.spilled - before.spilled,
        "used_after_bytes": after.used,
        "blocks": metrics["store/blocks"],
        "fetched_bytes": metrics["store/fetched_bytes"],
        "live_references_grew": references[-1] > references[0],
    }


def put_throughput() -> dict[str, float]:
    """Return GB/s of putting a table of ``THROUGHPUT_ROWS`` rows into the store, and of copying its bytes in memory."""
    lengths = workload.lengths(workload.THROUGHPUT_ROWS, SEED)
    total, prompts = int(lengths.sum()), np.full(len(lengths), workload.PROMPT_LENGTH)
    # Ones, because zeros that were never written are one page of memory and read faster than data.
    columns = {
        name: Ragged.from_lengths(np.ones(total, dtype), lengths) for name, dtype in workload.TOKEN_DTYPES.items()
    }
    columns["prompt_ids"] = Ragged.from_lengths(np.ones(int(prompts.sum()), workload.PROMPT_DTYPE), prompts)
    table = DataProto({**columns, "score": np.ones(len(lengths), workload.SCORE_DTYPE)})
    flat = np.ones(table.nbytes, np.uint8)
    target = flat.copy()
    with ray_cluster(ClusterConfig(object_store_memory_gib=STORE_GIB), "bench"):
        put_s = _quickest(lambda: ray.put(table))
    return {
        "own_put_gb_s": table.nbytes / put_s / 1e9,
        "memcpy_gb_s": flat.nbytes / _quickest(lambda: np.copyto(target, flat)) / 1e9,
    }


def _quickest(call: Callable[[], Any], times: int = 7) -> float:
    """Return the seconds of the fastest of some calls; the result of a call is dropped before the next."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        result = call()
        found.append(time.perf_counter() - started)
        del result
    return min(found)


def peer(name: str, rows: int) -> dict[str, float] | None:
    """Return the output of the peer's script; None, noted on stderr, if it is not installed or cannot run here."""
    if not PEERS.exists():
        print(f"{name}: not installed (make peers)", file=sys.stderr)
        return None
    command = [sys.executable, "-m", f"benchmarks._peer_{name}", "--rows", str(rows), "--seed", str(SEED)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(PEERS)},
        check=False,
        timeout=PEER_DEADLINE_S,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        print(f"{name}: failed with {rows} rows, exit {done.returncode}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


Figures = dict[str, Any]


def middle(rounds: Sequence[Figures | None], key: str, digits: int) -> float | None:
    """Return the median over the rounds; None if a round lacks the figure."""
    found = [each[key] for each in rounds if each is not None]
    return round(median(found), digits) if found and len(found) == len(rounds) else None


def ratio(over: Sequence[Figures | None], under: Sequence[Figures | None], keys: tuple[str, str]) -> float | None:
    """Return the median over the rounds of the ratio of two figures."""
    found = [a[keys[0]] / b[keys[1]] for a, b in zip(over, under, strict=True) if a is not None and b is not None]
    return round(median(found), 1) if found and len(found) == len(over) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--block-kib", type=int, default=256, help="rollout.block_kib")
    parser.add_argument(
        "--verl-rows",
        type=int,
        choices=(1024, 4096),
        default=1024,
        help="rows of the comparison with verl; its padded copies of 4096 rows need about 19 GiB on the driver",
    )
    parser.add_argument("--skip-peers", action="store_true")
    options = parser.parse_args()
    rounds: dict[str, list[Any]] = {name: [] for name in ("large", "small", "put", "verl", "queue")}
    for _ in range(ROUNDS):
        rounds["large"].append(measure(4096, block_kib=options.block_kib))
        rounds["queue"].append(None if options.skip_peers else peer("transferqueue", 4096))
        rounds["put"].append(put_throughput())
        rounds["small"].append(measure(1024, block_kib=options.block_kib))
        rounds["verl"].append(None if options.skip_peers else peer("verl", options.verl_rows))
    with_advantages = measure(4096, block_kib=options.block_kib, has_advantages=True)
    large, steps = rounds["large"][0], ("step_s", "step_s")
    compared_with_verl = rounds["large" if options.verl_rows == 4096 else "small"]
    print_result(
        {
            "rows": 4096,
            "tokens": large["tokens"],
            "payload_bytes": large["payload_bytes"],
            "rounds": ROUNDS,
            "step_s_4096": middle(rounds["large"], "step_s", 4),
            "step_s_1024": middle(rounds["small"], "step_s", 4),
            "step_s_with_advantages": round(with_advantages["step_s"], 4),
            "scaling": ratio(rounds["large"], rounds["small"], steps),
            "driver_rss_growth_mb": middle(rounds["large"], "driver_rss_growth_mb", 1),
            "store_put_bytes_over_payload": round(large["put_over_payload"], 3),
            "spilled_bytes": large["spilled_bytes"],
            "blocks": large["blocks"],
            "fetched_bytes": large["fetched_bytes"],
            "stage_s": large["stage_s"],
            "verl_rows": options.verl_rows,
            "verl_step_s": middle(rounds["verl"], "step_s", 3),
            "ratio_vs_verl": ratio(rounds["verl"], compared_with_verl, steps),
            "transferqueue_step_s": middle(rounds["queue"], "step_s", 3),
            "ratio_vs_transferqueue_step": ratio(rounds["queue"], rounds["large"], steps),
            "transferqueue_put_gb_s": middle(rounds["queue"], "put_gb_s", 2),
            "own_put_gb_s": middle(rounds["put"], "own_put_gb_s", 2),
            "ratio_vs_transferqueue": ratio(rounds["put"], rounds["queue"], ("own_put_gb_s", "put_gb_s")),
            "memcpy_gb_s": middle(rounds["put"], "memcpy_gb_s", 2),
        }
    )


if __name__ == "__main__":
    main()
