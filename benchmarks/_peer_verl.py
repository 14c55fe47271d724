"""verl's side of ``benchmarks.data_plane``:
``PYTHONPATH=.peers python -m benchmarks._peer_verl [--rows N] [--seed S]``.

Measures the hand-overs of a PPO step as verl 0.9.1's classic trainer makes them (``RayPPOTrainer.fit``). The driver
holds one padded DataProto and, for each stage, converts, splits, sends, collects, pads and unites it. DataProto,
RayWorkerGroup, the dispatch modes of each stage and the padding helpers are verl's own, on CPU; only the models are
missing. In verl's favour, these are left out: the balancing of the batch (a copy of the whole table, on by default in
verl), the entropy that is returned with the old log-probs, metrics, and the arithmetic of the advantages.

Prints one JSON object as its last line: ``step_s``, ``driver_rss_growth_mb``. `make peers` installs the packages it
needs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import psutil
import ray
import torch
from tensordict import TensorDict
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

from benchmarks import _workload as workload

MESH = make_nd_compute_dataproto_dispatch_fn(
    mesh_name="peer"
)  # the call with which verl's actor, ref and critic workers register
STORE_BYTES = 8 << 30
SLOW_STEP_S = 60.0

# Driver, workers and store together took 6.3 GiB with 1024 rows; Ray and the imports are about 2 GiB of it.
FIXED_BYTES = 2 << 30
BYTES_PER_ROW = int(4.3 * 2**20)
USABLE_FRAC = 0.8  # Ray kills workers, not only ours, once 95 % of the machine's memory is used


class PeerWorker(Worker):
    """All roles of one rank, without arithmetic. Masks and positions are made in
    advance: verl's driver uses them to remove padding.
    """

    def __init__(self, response_lengths: np.ndarray) -> None:
        super().__init__()
        self._register_dispatch_collect_info("peer", dp_rank=self.rank, is_collect=True)
        lengths = torch.tensor(
            np.array_split(response_lengths, self.world_size)[self.rank]
        )  # a copy: arrays from Ray are read-only
        response_mask = torch.arange(workload.MAX_RESPONSE_LENGTH) < lengths[:, None]
        self.response_mask = response_mask.long()
        self.attention_mask = torch.cat(
            [torch.ones(len(lengths), workload.PROMPT_LENGTH, dtype=torch.int64), self.response_mask], dim=1
        )
        self.position_ids = (self.attention_mask.cumsum(dim=1) - 1).clamp(min=0)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """Return the output of an agent-loop worker; its manager splits and concatenates as this dispatch mode does."""
        rows, width = len(prompts), workload.MAX_RESPONSE_LENGTH
        columns = {
            "prompts": torch.ones(rows, workload.PROMPT_LENGTH, dtype=torch.int64),
            "responses": torch.ones(rows, width, dtype=torch.int64),
            "response_mask": self.response_mask,
            "input_ids": torch.ones(rows, workload.PROMPT_LENGTH + width, dtype=torch.int64),
            "attention_mask": self.attention_mask,
            "position_ids": self.position_ids,
            "rollout_log_probs": torch.ones(rows, width),
        }
        return DataProto(batch=TensorDict(columns, batch_size=rows))

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def compute_score_batch(self, batch: DataProto) -> list[dict[str, float]]:
        """Return the output of a reward-loop worker; its manager splits and collects as this dispatch mode does."""
        return [{"reward_score": 0.0} for _ in range(len(batch))]

    @register(dispatch_mode=MESH)
    def infer(self, batch: TensorDict) -> TensorDict:
        """Return one float32 per token of prompt and response, as the engines of actor, ref and critic do."""
        offsets = batch["input_ids"].offsets()
        per_token = torch.nested.nested_tensor_from_jagged(torch.ones(int(offsets[-1])), offsets=offsets)
        return tu.get_tensordict({"per_token": per_token}, non_tensor_dict={"metrics": {"mfu": 0.0}})

    @register(dispatch_mode=MESH)
    def update(self, batch: TensorDict) -> TensorDict:
        return tu.get_tensordict({}, non_tensor_dict={"metrics": {"loss": [0.0], "rows": [len(batch)]}})


def check_memory(rows: int) -> None:
    """Refuse a number of rows that would exhaust the machine's memory.

    Raises:
        ValueError: these rows, padded, need more than the usable share of the available memory.
    """
    needed, usable = FIXED_BYTES + rows * BYTES_PER_ROW, int(USABLE_FRAC * psutil.virtual_memory().available)
    if needed > usable:
        raise ValueError(
            f"found {usable / 2**30:.1f} GiB of usable memory, expected {needed / 2**30:.1f} GiB for {rows} padded "
            f"rows. Use --rows 1024."
        )


def start_workers(response_lengths: np.ndarray) -> RayWorkerGroup:
    pool = RayResourcePool([workload.NUM_WORKERS], use_gpu=False, max_colocate_count=1)
    worker = RayClassWithInitArgs(ray.remote(PeerWorker), response_lengths=response_lengths)
    return RayWorkerGroup(pool, worker, device_name="cpu")


def unpadded(batch: DataProto) -> TensorDict:
    """Run the first steps of every model call in verl's trainer, which remove padding."""
    table = left_right_2_no_padding(batch.to_tensordict())
    return tu.assign_non_tensor(table, calculate_entropy=False, compute_loss=False)


def per_token_column(infer: Callable[[TensorDict], TensorDict], batch: DataProto, column: str) -> DataProto:
    """Run verl's ``_compute_old_log_prob``, ``_compute_ref_log_prob`` or ``_compute_values``, which are alike."""
    table = unpadded(batch)
    per_token = no_padding_2_padding(tu.get(infer(table), "per_token"), table)
    return DataProto.from_tensordict(tu.get_tensordict({column: per_token.float()}))


def run_step(workers: RayWorkerGroup, num_prompts: int) -> None:
    prompts = {"prompts": torch.ones(num_prompts, workload.PROMPT_LENGTH, dtype=torch.int64)}
    batch = DataProto.from_dict(
        prompts, non_tensors={"uid": np.array([str(i) for i in range(num_prompts)], dtype=object)}
    )
    to_generate = batch.pop(batch_keys=["prompts"]).repeat(workload.SAMPLES_PER_PROMPT, interleave=True)
    generated = workers.generate_sequences(to_generate)
    batch = batch.repeat(workload.SAMPLES_PER_PROMPT, interleave=True).union(generated)
    del generated

    scored = [row for rank in workers.compute_score_batch(batch) for row in rank]
    assert len(scored) == len(batch), f"{len(scored)} scores came back for {len(batch)} rows"
    scores = torch.ones_like(batch.batch["responses"], dtype=torch.float32)
    batch = batch.union(DataProto(batch=TensorDict({"rm_scores": scores}, batch_size=len(batch))))

    batch = batch.union(per_token_column(workers.infer, batch, "old_log_probs"))
    batch = batch.union(per_token_column(workers.infer, batch, "ref_log_prob"))
    batch = batch.union(per_token_column(workers.infer, batch, "values"))

    batch.batch["token_level_scores"] = batch.batch["rm_scores"]
    batch.batch["token_level_rewards"] = batch.batch["token_level_scores"]
    batch.batch["advantages"] = torch.ones_like(batch.batch["values"])
    batch.batch["returns"] = torch.ones_like(batch.batch["values"])

    for _role in ("critic", "actor"):
        metrics = tu.get(workers.update(unpadded(batch)), "metrics")
        assert metrics["rows"] == [len(batch) // workload.NUM_WORKERS], (
            f"a worker was sent {metrics['rows']} of {len(batch)} rows"
        )


def step_seconds(workers: RayWorkerGroup, num_prompts: int) -> float:
    start = time.perf_counter()
    run_step(workers, num_prompts)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    response_lengths = workload.lengths(args.rows, args.seed)
    check_memory(args.rows)
    ray.init(address="local", num_cpus=8, include_dashboard=False, object_store_memory=STORE_BYTES)
    try:
        workers = start_workers(response_lengths)
        num_prompts = args.rows // workload.SAMPLES_PER_PROMPT
        warm_up_s = step_seconds(workers, num_prompts)
        with workload.MemoryGrowth() as growth:
            seconds = [step_seconds(workers, num_prompts) for _ in range(2 if warm_up_s > SLOW_STEP_S else 3)]
    finally:
        ray.shutdown()
    print(json.dumps({"step_s": round(median(seconds), 4), "driver_rss_growth_mb": round(growth.mb, 1)}))


if __name__ == "__main__":
    main()
