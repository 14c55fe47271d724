"""A driver as the command line runs one, for tests that take its Ray away: ``python -m tests.ray._driver WHAT``.

It says ``ready`` when it begins with WHAT, and what it does then would last for minutes.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import ray
from ray._private import worker

from tests.ray.conftest import echo_group
from tests.ray.echo_role import EchoRole
from verl_like import cli
from verl_like.config.schema import ClusterConfig
from verl_like.context import current
from verl_like.controller import cluster, ray_calls
from verl_like.controller.errors import Announcer, Interrupt
from verl_like.controller.placement import ray_cluster
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import DataProto, Ragged
from verl_like.runs.signals import ends_cleanly

STOPPED_S = 3.0  # instead of ten, so that the tests are quick
LAST_S = 12.0  # instead of thirty
PART_S = 2.0  # of an end, instead of five
cluster.STOPPED_S, cluster.LAST_S = STOPPED_S, LAST_S
cluster.FINAL_CALLS_S = cluster.SHUTDOWN_S = PART_S


def prompts(rows: int, tokens: int) -> RemoteBatch:
    ids = Ragged.from_lengths(np.zeros(rows * tokens, np.int32), np.full(rows, tokens))
    return RemoteBatch.put(DataProto({"prompt_ids": ids, "group_id": np.arange(rows)}), {"group_id": np.arange(rows)})


def wait(group: WorkerGroup) -> None:
    group.call(EchoRole.sleep_on, 0, 300)


def stream(group: WorkerGroup) -> None:
    batch = prompts(2000, 64)
    for _ in group.stream(EchoRole.stream, batch, [np.arange(1000), np.arange(1000, 2000)], delay_s=0.1):
        pass


def put(group: WorkerGroup) -> None:
    """Holds a result in the store, whose memory must not be released while a put is stuck."""
    held = prompts(16, 100_000).fetch(["prompt_ids"], timeout_s=20)
    while held:
        prompts(16, 10_000)
        time.sleep(0.01)


def leave(group: WorkerGroup) -> None:
    """Nothing: what comes next is the end, once the test has had time to act."""
    time.sleep(2)


def hear(group: WorkerGroup) -> None:
    """Make a message of Ray's servers about a dead server reach this process before it notices the death itself."""
    ray._private.utils.publish_error_to_driver("raylet_died", "Raylet is terminated.", worker.global_worker.gcs_client)
    time.sleep(2)


def run_until_asked(group: WorkerGroup) -> None:
    while not current(Interrupt).is_set():
        group.call(EchoRole.who)
        time.sleep(0.2)
    time.sleep(2)  # the time that a process needs to die of a signal
    assert [rank for rank, _ in group.call(EchoRole.who)] == [0, 1]
    RemoteBatch.put(DataProto({"x": np.zeros(10**6)}), {"row": np.arange(10**6)}).fetch(["x"], timeout_s=20)
    print("all were there until the end", flush=True)


def job() -> int:
    with ends_cleanly(60, lambda: ""), ray_cluster(ClusterConfig(object_store_memory_gib=0.25), "tests"):
        group = echo_group(timeout_s=120)
        try:
            print("ready", flush=True)
            globals()[sys.argv[1]](group)
        except BaseException as error:
            current(Announcer).announce(error)
            raise
        finally:
            group.shut_down()
    return 0


if __name__ == "__main__":
    assert ray_calls.ANSWER_S == 30
    sys.exit(cli._ended(cli._run(job)))
