"""TransferQueue's side of ``benchmarks.data_plane``:
``PYTHONPATH=.peers python -m benchmarks._peer_transferqueue [--rows N] [--seed S]``.

Measures the hand-overs of a PPO step through TransferQueue 0.1.11's public client, over its simple storage (two
units). The driver passes metadata. Each worker gets the columns that its stage reads for its half of the rows, and puts
the columns that it adds. The driver computes the advantages, as in TransferQueue's demonstration and in verl's trainer
for it. A ragged column can be a jagged or a strided nested tensor or padded. The fastest layout depends on the call, so
all three are measured and each figure is that of its fastest.

Prints one JSON object as its last line: ``step_s``; ``put_gb_s`` and ``get_gb_s`` of one client, in packed bytes
for every layout; and the layout of each. `make peers` installs the packages it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from statistics import median

import numpy as np
import psutil
import ray
import torch

# TransferQueue reduces its default of 8 threads to the number of cores, with a warning at each call. It reads the value
# at import, here and in Ray's workers.
os.environ.setdefault("TQ_NUM_THREADS", str(psutil.cpu_count(logical=False)))

import transfer_queue
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import BatchMeta, TransferQueueClient

from benchmarks import _workload as workload

CONFIG = OmegaConf.create(
    {"backend": {"storage_backend": "SimpleStorage", "SimpleStorage": {"num_data_storage_units": 2}}}
)
LAYOUTS = ("jagged", "strided", "padded")
NUM_STEPS = 3
NUM_TRANSFERS = 5


def ragged(values: torch.Tensor, response_lengths: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the packed values [K] as rows of these lengths."""
    if layout == "jagged":
        offsets = torch.nn.functional.pad(response_lengths.cumsum(0), (1, 0))
        return torch.nested.nested_tensor_from_jagged(values, offsets=offsets)
    assert layout == "strided", f"{layout} is none of {LAYOUTS}"
    return torch.nested.as_nested_tensor(list(values.split(response_lengths.tolist())), layout=torch.strided)


def table(columns: tuple[str, ...], response_lengths: torch.Tensor, layout: str) -> TensorDict:
    """Return freshly allocated columns of these rows."""
    rows, num_tokens = len(response_lengths), int(response_lengths.sum())
    made = {}
    for name in columns:
        if name == "prompt_ids":
            made[name] = torch.zeros(rows, workload.PROMPT_LENGTH, dtype=torch.int32)
        elif name == "score":
            made[name] = torch.zeros(rows, 1)
        elif layout == "padded":
            made[name] = torch.from_numpy(workload.token_column(name, rows * workload.MAX_RESPONSE_LENGTH)).view(
                rows, -1
            )
        else:
            made[name] = ragged(torch.from_numpy(workload.token_column(name, num_tokens)), response_lengths, layout)
    return TensorDict(made, batch_size=rows)


class Rank:
    """One process that gets the columns a stage reads and puts those it adds, for the rows of these lengths."""

    def __init__(self, response_lengths: np.ndarray) -> None:
        transfer_queue.init(CONFIG)
        self.client = transfer_queue.get_client()
        self.response_lengths = torch.tensor(response_lengths)

    def run(self, meta: BatchMeta, stage: workload.HandOver, layout: str) -> BatchMeta:
        rows = self.client.get_data(meta.select_fields(list(stage.reads)))
        assert len(rows) == len(self.response_lengths), (
            f"{stage.stage} got {len(rows)} of {len(self.response_lengths)} rows"
        )
        return (
            self.client.put(data=table(stage.adds, self.response_lengths, layout), metadata=meta)
            if stage.adds
            else meta
        )


def run_step(driver: Rank, workers: list[ray.actor.ActorHandle], *, layout: str, partition: str) -> None:
    meta = driver.client.put(data=table(("prompt_ids",), driver.response_lengths, layout), partition_id=partition)
    halves = meta.chunk(workload.NUM_WORKERS)
    for stage in workload.STEP:
        if stage.stage == "advantages":
            halves = driver.run(BatchMeta.concat(halves), stage, layout).chunk(workload.NUM_WORKERS)
        else:
            halves = ray.get(
                [worker.run.remote(half, stage, layout) for worker, half in zip(workers, halves, strict=True)],
                timeout=600,
            )


def step_seconds(driver: Rank, workers: list[ray.actor.ActorHandle], layout: str) -> float:
    """Return the median over the steps after a first one; clearing the partition is not timed."""
    seconds = []
    for step in range(1 + NUM_STEPS):
        partition = f"{layout}_{step}"
        start = time.perf_counter()
        run_step(driver, workers, layout=layout, partition=partition)
        seconds.append(time.perf_counter() - start)
        driver.client.clear_partition(partition)
    return median(seconds[1:])


def transfer_seconds(client: TransferQueueClient, response_lengths: np.ndarray, layout: str) -> tuple[float, float]:
    """Return the seconds of the fastest put and get of a table with every column, after a warm-up of each."""
    rows = table(("prompt_ids", "score", *workload.TOKEN_DTYPES), torch.tensor(response_lengths), layout)
    for column in rows.values():
        column.fill_(1)  # memory that was never written is one page of zeros, which reads faster than data
    puts, gets = [], []
    for i in range(1 + NUM_TRANSFERS):
        partition = f"{layout}_table_{i}"
        start = time.perf_counter()
        meta = client.put(data=rows, partition_id=partition)
        middle = time.perf_counter()
        client.get_data(meta)
        puts.append(middle - start)
        gets.append(time.perf_counter() - middle)
        client.clear_partition(partition)
    return min(puts[1:]), min(gets[1:])


def measure(response_lengths: np.ndarray, table_lengths: np.ndarray) -> dict[str, float | str]:
    driver = Rank(response_lengths)
    workers = [ray.remote(Rank).remote(half) for half in np.array_split(response_lengths, workload.NUM_WORKERS)]
    steps = {layout: step_seconds(driver, workers, layout) for layout in LAYOUTS}
    transfers = {layout: transfer_seconds(driver.client, table_lengths, layout) for layout in LAYOUTS}
    gb = workload.payload_bytes(table_lengths) / 1e9
    step = min(LAYOUTS, key=lambda layout: steps[layout])
    put = min(LAYOUTS, key=lambda layout: transfers[layout][0])
    get = min(LAYOUTS, key=lambda layout: transfers[layout][1])
    print(f"step {steps}, transfer {transfers}", file=sys.stderr)
    return {
        "step_s": round(steps[step], 4),
        "put_gb_s": round(gb / transfers[put][0], 4),
        "get_gb_s": round(gb / transfers[get][1], 4),
        "step_layout": step,
        "put_layout": put,
        "get_layout": get,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    response_lengths, table_lengths = (
        workload.lengths(args.rows, args.seed),
        workload.lengths(workload.THROUGHPUT_ROWS, args.seed),
    )
    ray.init(address="local", num_cpus=8, include_dashboard=False, object_store_memory=1 << 30)
    try:
        found = measure(response_lengths, table_lengths)
        transfer_queue.close()
    finally:
        ray.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
