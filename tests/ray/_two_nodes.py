"""Run a cluster of two nodes on this machine in a separate process and print the results as JSON.

Started by test_two_nodes.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import ray
from ray._private import internal_api
from ray.cluster_utils import Cluster

from tests.ray.conftest import ROOT
from tests.ray.echo_role import EchoRole
from verl_like.context import current
from verl_like.controller.errors import LostBlockError, StallError, WorkerError
from verl_like.controller.node_watchdogs import node_watchdogs
from verl_like.controller.placement import Devices, Placement
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.verdicts import Verdicts
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import DataProto, Ragged
from verl_like.telemetry.heartbeat import heartbeat_folder, of_node, read_all
from verl_like.watchdog.guard import watchdog

ROWS, TOKENS, PER_GROUP = 64, 32 * 1024, 4  # a row's column is 128 KiB
RUN_ID = f"two-nodes-{os.getpid()}"
STALL_S = 30.0


def created_bytes(node_id: str) -> int:
    """Bytes ever created in one node's store: what was made there and what was pulled there."""
    [node] = [node for node in ray.nodes() if node["NodeID"] == node_id]
    stats = internal_api.node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
    return int(stats.store_stats.cumulative_created_bytes)


def placed_group() -> WorkerGroup:
    placement = Placement(Devices("cpu", 2, 1), timeout_s=30)
    env, heartbeats = {"PYTHONPATH": str(ROOT)}, str(heartbeat_folder(RUN_ID))
    group = WorkerGroup("echo", world_size=2, placement=placement, env=env, timeout_s=60, heartbeats=heartbeats)
    group.build("tests.ray.echo_role:build", lambda rank: (rank,), timeout_s=60)
    group.wait_built(timeout_s=60)
    return group


def lose_blocks(
    group: WorkerGroup, cluster: Cluster, second: ray.cluster_utils.ClusterNode, far: int
) -> dict[str, object]:
    """Return what the other node's rank receives, and the message when that node dies."""
    lengths = np.full(ROWS, TOKENS)
    facts = {"response_tokens": lengths, "group_id": np.arange(ROWS) // PER_GROUP}
    prompts = Ragged.from_lengths(np.arange(ROWS, dtype=np.int32), np.ones(ROWS, int))
    batch = RemoteBatch.put(DataProto({"prompt_ids": prompts}), facts)
    everything, nothing = np.arange(ROWS), np.arange(0)
    share = np.arange(ROWS // 4)

    def dealt(rows_here: np.ndarray, rows_far: np.ndarray) -> list[np.ndarray]:
        return [rows_here, rows_far] if far == 1 else [rows_far, rows_here]

    # All rows are made here; the far rank reads a quarter of them.
    group.map_rows(EchoRole.values, batch, dealt(everything, nothing), TOKENS, adds=frozenset({"values"}))
    before = created_bytes(second.node_id)
    group.map_rows(EchoRole.total, batch, dealt(nothing, share), "values")
    crossed = created_bytes(second.node_id) - before
    # The other way round, and then the far node dies.
    batch.drop({"values"})
    group.map_rows(EchoRole.values, batch, dealt(everything[:8], everything[8:]), TOKENS, adds=frozenset({"values"}))
    cluster.remove_node(second)
    try:
        batch.fetch(["values"], timeout_s=60)
        lost = "nothing"
    except LostBlockError as error:
        lost = str(error)
    try:
        group.call(EchoRole.node)
        died = "nothing"
    except WorkerError as error:
        died = str(error)
    return {"crossed_bytes": crossed, "share_bytes": 4 * TOKENS * len(share), "lost": lost, "died": died}


def stand_still(pid: int) -> str:
    """Return the message when this process is stopped; it continues afterwards."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STALL_S
    try:
        while time.monotonic() < deadline:
            time.sleep(0.2)
            current(Verdicts).check()
        return "nothing"
    except StallError as error:
        return str(error)
    finally:
        os.kill(pid, signal.SIGCONT)
        current(Verdicts).expect(acts=True)


def main() -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 2**27, "include_dashboard": False}
    )
    second = cluster.add_node(num_cpus=1, object_store_memory=2**27)
    ray.init(cluster.address, log_to_driver=False)
    current(Verdicts).expect(acts=True)
    with (
        TemporaryDirectory() as stalls,
        watchdog(RUN_ID, Path(stalls), current(Verdicts), floor_s=60, ends=False),
        node_watchdogs(RUN_ID, Path(stalls), current(Verdicts), floor_s=60, start_timeout_s=60),
    ):
        group = placed_group()
        nodes = group.call(EchoRole.node)
        far = nodes.index(second.node_id)
        pids = {reading.who: reading.pid for reading in read_all(heartbeat_folder(of_node(RUN_ID, second.node_id)))}
        happened = {
            "nodes": len(set(nodes)),
            "far": f"echo rank {far}",
            "watched_there": sorted(pids),
            "watched_here": sorted(reading.who for reading in read_all(heartbeat_folder(RUN_ID))),
            "stall": stand_still(pids[f"echo rank {far}"]),
            "stopped_raylet": stand_still(psutil.Process(pids[f"echo rank {far}"]).ppid()),
            **lose_blocks(group, cluster, second, far),
        }
    print(json.dumps(happened))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
